"""`warpboard runs`: the list, filtered."""

from argparse import ArgumentParser, Namespace

from app.cli.command import Command, add_json
from app.cli.output import note, print_json, print_table
from core.config import DataDir

_SHOWN = ("id", "name", "status", "workload", "gpu_model", "latency_ms", "gemm_frac", "idle_frac")
_SHOWN += ("tags", "created_at")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--filter", default="", metavar="QUERY", help="e.g. gpu:4090 compile:none latency<3 tag:x"
    )
    parser.add_argument("--sort", default="created_at", metavar="FIELD", help="column to sort by")
    parser.add_argument("--ascending", action="store_true", help="smallest or oldest first")
    parser.add_argument("--limit", type=int, default=100, help="most rows shown")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.show import records
    from db.connection import opened
    from db.runs import count_runs, list_runs, unknown_fields
    from db.search import FIELDS

    with opened(data.db_path) as db:
        frame = list_runs(
            db,
            options.filter,
            sort=options.sort,
            descending=not options.ascending,
            limit=options.limit,
        )
        total = count_runs(db, options.filter)
        unknown = unknown_fields(db, options.filter) if not total else ()
    for name in unknown:
        note(f"note: no run has a field {name!r}; fields are {', '.join(FIELDS)} and parameters")
    rows = records(frame)
    if options.json:
        print_json({"runs": rows, "total": total})
        return 0
    if not rows:
        note("no run matches" if options.filter else "no runs yet: try `warpboard demo`")
        return 0
    print_table(rows, _SHOWN)
    if total > len(rows):
        note(f"{len(rows)} of {total}; --limit shows more")
    return 0


COMMAND = Command(help="list runs", arguments=arguments, run=run)
