"""`warpboard runs`: the list, filtered."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.cli.output import add_json, note, print_json, print_table
from core.config import DataDir
from core.console import whole_number

if TYPE_CHECKING:
    from db.devices import Device

_SHOWN = (
    *("id", "name", "status", "workload", "gpu", "latency_ms", "gemm_frac", "idle_frac"),
    "idle_source",
    *("tags", "created_at"),
)
MAX_LIMIT = 10**9


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--filter", default="", metavar="QUERY", help="e.g. gpu:4090 compile:none latency<3 tag:x"
    )
    parser.add_argument("--sort", default="created_at", metavar="FIELD", help="column to sort by")
    parser.add_argument("--ascending", action="store_true", help="smallest or oldest first")
    limit = whole_number(0, MAX_LIMIT)
    parser.add_argument("--limit", type=limit, default=100, help="maximum number of rows")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="show this metric too, e.g. one stored by `profile --metric`; may be repeated",
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened
    from db.devices import devices
    from db.runs import count_runs, list_rows, metric_values, unknown_fields
    from db.search import FIELDS

    with opened(data.db_path, is_reader=True) as db:
        rows = list_rows(
            db,
            options.filter,
            sort=options.sort,
            descending=not options.ascending,
            limit=options.limit,
        )
        total = count_runs(db, options.filter)
        unknown = unknown_fields(db, options.filter) if not total else ()
        known = devices(db)
        numbers = metric_values(db, [r["id"] for r in rows], options.metric)
    for name in unknown:
        note(f"note: no run has a field {name!r}; fields are {', '.join(FIELDS)} and parameters")
    if options.metric:
        rows = [row | {"metrics": numbers.get(row["id"], {})} for row in rows]
    if options.json:
        print_json({"runs": rows, "total": total})
        return 0
    if rows:
        shown = [row | row.get("metrics", {}) | {"gpu": _gpu(row, known)} for row in rows]
        print_table(shown, (*_SHOWN[:6], *options.metric, *_SHOWN[6:]))
    elif not total:
        note("no run matches" if options.filter else "no runs yet: try `warpboard demo`")
    if total > len(rows):
        note(f"{len(rows)} of {total}; --limit shows more")
    return 0


def _gpu(row: Mapping[str, Any], known: Sequence["Device"]) -> str | None:
    """Return the GPU's model; where the run is bound to one physical GPU, its name."""
    from db.devices import device_name

    return device_name(known, row["device_id"]) if row.get("device_id") else row.get("gpu_model")
