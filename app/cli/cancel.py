"""`warpboard cancel RUN`: a queued run at once, a running one through its worker."""

from argparse import ArgumentParser, Namespace

from app.cli.command import Command, add_json
from app.cli.output import print_json
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="RUN", help="id, start of an id, or name")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened
    from db.runs import request_cancel, resolve_run

    with opened(data.db_path) as db:
        run_id = resolve_run(db, options.id)
        status = request_cancel(db, run_id)
    if options.json:
        print_json({"run_id": run_id, "status": status})
    elif status == "cancelled":
        print(f"{run_id}: cancelled")
    else:
        print(f"{run_id}: {status}; its worker has been asked to stop it")
    return 0


COMMAND = Command(help="cancel a queued or running run", arguments=arguments, run=run)
