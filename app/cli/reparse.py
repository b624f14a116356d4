"""`warpboard reparse [RUN...]`: read stored captures again, without a new run."""

from argparse import ArgumentParser, Namespace

from app.cli.output import add_json, note, print_json
from core.config import DataDir
from core.errors import UserError


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="RUN", help="default: every run with captures")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.reparse import reparse
    from db.connection import opened
    from db.runs import resolve_run, runs_with_captures

    run_ids = None
    if options.ids:
        with opened(data.db_path) as db:
            run_ids = list(dict.fromkeys(resolve_run(db, text) for text in options.ids))
            for run_id in set(run_ids) - set(runs_with_captures(db)):
                raise UserError(f"run {run_id}: it has no stored captures to read again")
    results = reparse(data, run_ids)
    for result in results:
        if result.error:
            note(f"{result.run_id}: not read again: {result.error}")
    if options.json:
        print_json({"runs": [r.as_dict() for r in results]})
    else:
        num_changed = sum(bool(r.changed) for r in results)
        num_read = sum(r.error is None for r in results)
        runs = "1 run" if num_read == 1 else f"{num_read} runs"
        print(f"{runs} read again; with other numbers now: {num_changed}")
    return 2 if any(r.error for r in results) else 0
