"""`warpboard pin RUN`: make a run the baseline of its workload, params and GPU."""

from argparse import ArgumentParser, Namespace

from app.cli.command import Command, add_json
from app.cli.output import print_json
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="RUN", help="id, start of an id, or name")
    parser.add_argument("--remove", action="store_true", help="take the pin away")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened
    from db.runs import pin, resolve_run, unpin

    with opened(data.db_path) as db:
        run_id = resolve_run(db, options.id)
        (unpin if options.remove else pin)(db, run_id)
    if options.json:
        print_json({"run_id": run_id, "is_baseline": not options.remove})
    else:
        print(f"{run_id} is {'no longer' if options.remove else 'now'} a baseline")
    return 0


COMMAND = Command(help="make a run the baseline of its kind", arguments=arguments, run=run)
