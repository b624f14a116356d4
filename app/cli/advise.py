"""`warpboard advise RUN`: changes worth trying with predicted latency; `--try`; `--score`."""

from argparse import ArgumentParser, Namespace
from typing import Any

from app.cli.output import add_json, add_run, note, print_json, print_table
from core.config import DataDir
from core.errors import UserError
from core.numbers import decimal


def arguments(parser: ArgumentParser) -> None:
    add_run(parser, nargs="?")
    parser.add_argument(
        "--try",
        dest="names",
        action="append",
        default=[],
        metavar="all|NAME",
        help="queue an experiment, or all of them; the prediction is stored and scored",
    )
    parser.add_argument(
        "--score", action="store_true", help="accuracy of predictions over all pairs of runs here"
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.advice import advice_of, try_experiments
    from app.score import score_document
    from db.connection import opened
    from db.runs import resolve_run

    if options.score:
        with opened(data.db_path, is_reader=True) as db:
            score = score_document(db, data)
        print_json(score) if options.json else _print_score(score)
        return 0
    if options.id is None:
        raise UserError("advise: name a run, or ask for --score")
    if options.names:
        with opened(data.db_path) as db:
            run_id = resolve_run(db, options.id)
            for experiment, queued in try_experiments(db, data, run_id, options.names):
                note(f"{experiment.name}: queued as run {queued}")
    with opened(data.db_path, is_reader=True) as db:
        advice = advice_of(db, data, resolve_run(db, options.id))
    print_json(advice) if options.json else _print_advice(advice)
    return 0


def _print_advice(advice: dict[str, Any]) -> None:
    latency = advice["latency_ms"]
    shown = "unknown" if latency is None else f"{decimal(latency)} ms"
    print(f"{advice['name']} on {advice['gpu'] or 'an unknown GPU'}: {shown} now")
    if advice["note"]:
        note(advice["note"])
    rows = [_row(e) for e in advice["experiments"]]
    if rows:
        print_table(rows, ["experiment", "predicted ms", "interval", "gain %", "status", "outcome"])
    for e in advice["experiments"]:
        print(f"\n{e['name']}: {'; '.join(e['evidence'])}. {e['note']}.")
        for name, value in e["environment"].items():
            print(f"  set {name}={value}")
        for line in e["lines"]:
            print(f"  {line}")
        if e["environment"] and "command" in e:
            print(f"  {e['command']}")
            if advice["not_tried"] is None and e["params"]:
                print(f"  or by a worker: ./warpboard advise {advice['run_id']} --try {e['name']}")
    if advice["not_tried"] and any(e["environment"] for e in advice["experiments"]):
        note(f"no setting can be tried by a worker: {advice['not_tried']}")
    for left in advice["not_offered"]:
        note(f"not offered: {left['name']}: {left['reason']}")


def _row(e: dict[str, Any]) -> dict[str, Any]:
    predicted = e["predicted_ms"]
    return {
        "experiment": e["name"],
        "predicted ms": None if e["status"] == "withheld" else predicted["median"],
        "interval": "-"
        if e["status"] == "withheld"
        else f"{decimal(predicted['low'])} to {decimal(predicted['high'])}",
        "gain %": 100 * e["gain_frac"],
        "status": e["status"],
        "outcome": outcome_text(e),
    }


def outcome_text(e: dict[str, Any]) -> str:
    """Return what came of an experiment: measured latency, hit or missed; how far it is."""
    if tried := e["tried"]:
        if "measured_ms" not in tried:
            return f"run {tried['run_id']}: {tried['status']}"
        return f"{decimal(tried['measured_ms'])} ms, {'hit' if tried['is_inside'] else 'missed'}"
    if measured := e.get("measured"):
        return (
            f"{decimal(measured['latency_ms'])} ms, {'hit' if measured['is_inside'] else 'missed'}"
        )
    return "-"


def _print_score(score: dict[str, Any]) -> None:
    overall, limits = score["overall"], score["limits"]
    if overall is None:
        print(
            "no prediction has been tested yet: try an experiment with `warpboard advise RUN --try`"
        )
        return
    print(
        f"{overall['num_pairs']} predictions measured: median error "
        f"{100 * overall['median_error_frac']:.1f} %, {overall['num_inside']} inside the stated "
        f"interval ({100 * overall['inside_frac']:.0f} %)\n"
        f"A kind is offered up to a median error of {100 * limits['median_error_frac']:.0f} % and "
        f"from {100 * limits['inside_frac']:.0f} % inside.\n"
    )
    print_table(
        [
            {
                "kind": k["kind"],
                "n": k["num_outcomes"],
                "median error %": 100 * k["median_error_frac"],
                "inside %": 100 * k["inside_frac"],
                "record": "poor" if k["is_poor"] else "good" if k["is_known"] else "too short",
            }
            for k in score["kinds"]
        ],
        ["kind", "n", "median error %", "inside %", "record"],
    )
    print()
    print_table(
        [
            {
                "kind": p["kind"],
                "base": p["base"],
                "change": p["experiment"],
                "predicted ms": p["predicted_ns"] / 1e6,
                "low": p["low_ns"] / 1e6,
                "high": p["high_ns"] / 1e6,
                "measured ms": p["measured_ns"] / 1e6,
                "error %": 100 * p["error_frac"],
                "inside": p["is_inside"],
            }
            for p in score["pairs"]
        ],
        ["kind", "base", "change", "predicted ms", "low", "high", "measured ms", "error %",
         "inside"],
    )  # fmt: skip
