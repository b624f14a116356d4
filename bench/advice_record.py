"""What the models of advice say of the example data's pairs: `python -m bench.advice_record`.

Prints the pairs that set constants and those that are held out, each with prediction, interval and
outcome; `--write` makes the record that ships from the held-out ones. `--data DIR` takes a data
directory that holds the example runs already (loading them takes minutes).
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from analysis.advice.score import SHIPPED, Outcome, records_of, write_outcomes
from app.demo.load import load_demo
from app.score import pair_outcomes
from core.config import DataDir
from db.connection import opened


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a data directory with the example runs")
    parser.add_argument("--write", action="store_true", help="write the record that ships")
    options = parser.parse_args(argv)
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
