"""`warpboard retry RUN`: put an ended run back into the queue."""

from argparse import ArgumentParser, Namespace

from app.cli.command import Command, add_json
from app.cli.output import print_json
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="RUN", help="id, start of an id, or name")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.submit import retry_run
    from db.connection import opened
    from db.runs import resolve_run

    with opened(data.db_path) as db:
        run_id = resolve_run(db, options.id)
        retry_run(db, data, run_id)
    if options.json:
        print_json({"run_id": run_id, "status": "queued"})
    else:
        print(f"{run_id}: queued")
    return 0


COMMAND = Command(help="queue an ended run again", arguments=arguments, run=run)
