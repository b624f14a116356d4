"""`warpboard cancel`, `retry`, `pin` and `tag`: commands that change one stored run."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from app.cli.output import add_json, add_run, print_json
from core.config import DataDir

if TYPE_CHECKING:
    from db import Database


def arguments(parser: ArgumentParser) -> None:
    add_run(parser)
    command = parser.prog.split()[-1]
    if command == "tag":
        parser.add_argument("tags", nargs="+", metavar="TAG", help="tags to add")
    if command in ("pin", "tag"):
        noun = "tags" if command == "tag" else "pin"
        parser.add_argument("--remove", action="store_true", help=f"remove the {noun}")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened
    from db.runs import resolve_run

    change = {"cancel": _cancel, "retry": _retry, "pin": _pin, "tag": _tag}[options.command]
    with opened(data.db_path) as db:
        run_id = resolve_run(db, options.id)
        changed, text = change(db, data, run_id, options)
    if options.json:
        print_json({"run_id": run_id, **changed})
    else:
        print(f"{run_id}{text}")
    return 0


Answer = tuple[dict[str, Any], str]
"""What changed, as JSON and as text that follows the run's id."""


def _cancel(db: "Database", data: DataDir, run_id: str, options: Namespace) -> Answer:
    """Cancel a queued run at once, a running one through its worker."""
    from db.queue import request_cancel

    status = request_cancel(db, run_id)
    asked = "" if status == "cancelled" else "; its worker has been asked to stop it"
    return {"status": status}, f": {status}{asked}"


def _retry(db: "Database", data: DataDir, run_id: str, options: Namespace) -> Answer:
    """Put an ended run back into the queue."""
    from app.submit import retry_run

    retry_run(db, data, run_id)
    return {"status": "queued"}, ": queued"


def _pin(db: "Database", data: DataDir, run_id: str, options: Namespace) -> Answer:
    """Make a run the baseline of its workload, params and GPU, or take the pin away."""
    from db.runs import pin, unpin

    (unpin if options.remove else pin)(db, run_id)
    how = "no longer" if options.remove else "now"
    return {"is_baseline": not options.remove}, f" is {how} a baseline"


def _tag(db: "Database", data: DataDir, run_id: str, options: Namespace) -> Answer:
    """Add tags to a run, or remove them."""
    from db.runs import set_tags

    add, remove = ([], options.tags) if options.remove else (options.tags, [])
    tags = set_tags(db, run_id, add, remove)
    return {"tags": tags}, f": {', '.join(tags) or 'no tags'}"
