"""`warpboard tag RUN TAG...`: add tags, or remove them."""

from argparse import ArgumentParser, Namespace

from app.cli.command import Command, add_json
from app.cli.output import print_json
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="RUN", help="id, start of an id, or name")
    parser.add_argument("tags", nargs="+", metavar="TAG", help="tags to add")
    parser.add_argument("--remove", action="store_true", help="take the tags away")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened
    from db.runs import resolve_run, set_tags

    add, remove = ([], options.tags) if options.remove else (options.tags, [])
    with opened(data.db_path) as db:
        run_id = resolve_run(db, options.id)
        tags = set_tags(db, run_id, add, remove)
    if options.json:
        print_json({"run_id": run_id, "tags": tags})
    else:
        print(f"{run_id}: {', '.join(tags) or 'no tags'}")
    return 0


COMMAND = Command(help="add or remove tags", arguments=arguments, run=run)
