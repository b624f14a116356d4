"""What the models of advice say of the example data's pairs: `python -m bench.advice_record`.

Prints the pairs that set constants and those that are held out, each with prediction, interval and
outcome; `--write` makes the record that ships from the held-out ones. `--data DIR` takes a data
directory that holds the example runs already (loading them takes minutes). `--later PREFIX` instead
adds the pairs of the runs there that are no examples to `record_later.csv`, with the intervals that
they were offered with.
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from analysis.advice.score import (
    LATER,
    SHIPPED,
    Outcome,
    read_outcomes,
    records_of,
)
from app.advice import advice_of
from app.demo.load import load_demo
from app.score import pair_outcomes
from core.config import DataDir
from db.connection import opened
from db.predictions import measured_jobs


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a data directory with the example runs")
    parser.add_argument("--write", action="store_true", help="write the record that ships")
    parser.add_argument("--later", metavar="PREFIX", help="before the names of the bases")
    options = parser.parse_args(argv)
    if options.later is not None:
        if options.data is None:
            parser.error("--later: goes with --data")
        return _add_later(DataDir(root=options.data), options.later)
    with tempfile.TemporaryDirectory() as scratch:
        data = DataDir(root=options.data or Path(scratch)).ensure()
        if options.data is None:
            load_demo(data, lambda _: None)
        with opened(data.db_path) as db:
            set_constants = pair_outcomes(db, data, held_out=False)
            held_out = pair_outcomes(db, data)
    print("pairs that may set constants")
    _print(set_constants)
    print("\nheld-out pairs")
    _print(held_out)
    if options.write:
        write_outcomes(held_out, SHIPPED)
    by_part = {
        k: [r.num_outcomes, round(r.median_error_frac, 4), round(r.inside_frac, 4)]
        for k, r in records_of(held_out).items()
    }
    print(json.dumps({"held_out": by_part}))
    return 0


def _add_later(data: DataDir, prefix: str) -> int:
    """Add what was predicted of runs that are no examples, where the outcome is measured."""
    with opened(data.db_path) as db:
        found = [
            _offered(document, experiment, f"{prefix}{document['name']}")
            for job in measured_jobs(db)
            if not job.is_example
            for document in [advice_of(db, data, job.run_ids[0])]
            for experiment in document["experiments"]
            if "measured" in experiment
        ]
    before = read_outcomes(LATER)
    known = {(x.base, x.experiment, x.model_version) for x in before}
    new = [x for x in found if (x.base, x.experiment, x.model_version) not in known]
    write_outcomes([*before, *new], LATER)
    _print(new)
    return 0


def write_outcomes(outcomes: Iterable[Outcome], path: Path) -> None:
    """Write outcomes as `analysis.advice.score.read_outcomes` reads them."""
    names = [f.name for f in fields(Outcome)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({n: getattr(x, n) for n in names} for x in outcomes)


def _offered(document: Mapping[str, Any], experiment: Mapping[str, Any], base: str) -> Outcome:
    predicted = {name: ms * 1e6 for name, ms in experiment["predicted_ms"].items()}
    return Outcome(
        kind=experiment["kind"],
        experiment=experiment["name"],
        gpu_model=document["gpu"],
        base=base,
        predicted_ns=predicted["median"],
        low_ns=predicted["low"],
        high_ns=predicted["high"],
        measured_ns=experiment["measured"]["latency_ms"] * 1e6,
        base_ns=document["latency_ms"] * 1e6,
        model_version=document["model_version"],
    )


def _print(outcomes: Sequence[Outcome]) -> None:
    print(
        f"{'kind':<14}{'base':<60}{'change':<26}{'predicted':>11}{'measured':>11}{'error':>8}  in"
    )
    for x in sorted(outcomes, key=lambda x: (x.kind, x.base, x.experiment)):
        print(
            f"{x.kind:<14}{x.base[:58]:<60}{x.experiment:<26}{x.predicted_ns / 1e6:>8.4g} ms"
            f"{x.measured_ns / 1e6:>8.4g} ms{x.error_frac:>8.1%}  {'yes' if x.is_inside else 'no'}"
        )


if __name__ == "__main__":
    raise SystemExit(main())
