"""`warpboard delete RUN...`: runs with their captures."""

from argparse import ArgumentParser, Namespace

from app.cli.output import add_json, add_run, print_json
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    add_run(parser, nargs="+")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened
    from db.runs import delete_runs, remove_folders, resolve_run

    with opened(data.db_path) as db:
        run_ids = list(dict.fromkeys(resolve_run(db, text) for text in options.ids))
        delete_runs(db, run_ids)
    remove_folders((data.captures, data.spans, data.uploads), run_ids)
    if options.json:
        print_json({"deleted": run_ids})
    else:
        print(f"deleted {', '.join(run_ids)}")
    return 0
