"""How often a verdict is wrong: false alarms on equal builds, and true changes found.

    python -m bench.verdicts [--trials 2000] [--seed 1]

Prints a table and, last, one JSON line. Equal builds (A/A): the scenarios of `verdict_scenarios`,
and the real H100 data of `tests/data/h100/noise` in random and in all splits. Goals: at most 1 %
false faster/slower in every row, with 95 % certainty; of true 3 % changes (1 % noise between
processes, 1 % inside, 30 samples) at least 95 % found from 10 interleaved process pairs and 80 %
from 5. A row whose trials leave it open is measured afresh with MORE times as many, and those alone
count. Takes about six minutes on one core.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import special

from analysis.compare.statistics import MIN_PAIRS, Order, centre
from analysis.compare.verdict import judge
from bench.verdict_scenarios import (
    NUM_SAMPLES,
    SCENARIOS,
    SIZES,
    UNEVEN,
    UNEVEN_SIZES,
    Groups,
    Rng,
    Scenario,
    Sides,
    block_drift,
    quiet,
)

TRUE_RATIO = 1.03
MAX_FALSE_FRAC = 0.01
MORE = 10
BLOCK = 2000
"Trials held in memory at a time."
GOALS = {5: 0.80, 10: 0.95}
NUM_FLOOR_PROCESSES = 6
NOISE_FILE = Path(__file__).parent.parent / "tests/data/h100/noise/decode_4_layers_eager.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description="Rates of wrong and right verdicts.")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    false_rows = list(false_alarm_rows(rng, args.trials))
    power_rows = list(power_rows_of(rng, args.trials))
    hidden = list(hidden_drift_rows(rng, trials=args.trials // 4))
    coverage = interval_coverage(rng, max(100, args.trials // 5))
    print_rows(
        "False faster/slower on equal builds",
        false_rows,
        f"at most {MAX_FALSE_FRAC:.0%} with 95 % certainty",
    )
    print_rows(f"Found of true changes of {TRUE_RATIO - 1:.0%}", power_rows, "goal in the name")
    print_rows("Called where files hide that A ran before B, under drift", hidden, "no goal")
    print("Coverage of the nominal 95 % interval, 5 against 5 processes")
    for name, value in coverage.items():
        print(f"  {name:<60} {value:7.1%}")
    print(json.dumps(summarise(false_rows, power_rows, coverage, args.trials)))


def print_rows(title: str, rows: list[tuple[str, float, int]], note: str) -> None:
    print(f"{title} ({note})")
    for name, rate, trials in rows:
        print(f"  {name:<60} {rate:7.2%}  of {trials}")


def summarise(
    false_rows: list[tuple[str, float, int]],
    power_rows: list[tuple[str, float, int]],
    coverage: dict[str, float],
    trials: int,
) -> dict[str, object]:
    worst = max(false_rows, key=lambda row: row[1])
    bounds = {
        name: upper_bound(round(rate * trials), trials)
        for name, rate, trials in false_rows
        if "every split" not in name
    }
    power = {name: rate for name, rate, _ in power_rows}
    return {
        "trials": trials,
        "worst_false_frac": worst[1],
        "worst_false_row": worst[0],
        "false_frac": {name: rate for name, rate, _ in false_rows},
        "found_frac": power,
        "coverage": coverage,
        "worst_bound": max(bounds.values()),
        "meets_goals": max(bounds.values()) <= MAX_FALSE_FRAC
        and worst[1] <= MAX_FALSE_FRAC
        and all(rate >= GOALS[int(name.split()[0])] for name, rate in power.items()),
    }


def false_alarm_rows(rng: Rng, trials: int) -> Iterator[tuple[str, float, int]]:
    """Yield (scenario, share called faster or slower, trials), without and with a floor."""
    for name, (scenario, order) in SCENARIOS.items():
        for n_a, n_b in (*SIZES, *(UNEVEN_SIZES if name in UNEVEN else ())):
            for words, floor in (("", None), (", floor measured", partial(_floor, rng, scenario))):
                draw = partial(scenario, rng, n_a, n_b)
                yield f"{name}, {n_a} v {n_b}{words}", *false_rate(draw, order, floor, trials)
    for context, processes in load_real().items():
        for n in (1, 2, 3):
            calls = [_is_called(a, b, "unknown") for a, b in all_splits(processes, n)]
            yield f"H100 at {context}, every split {n} v {n}", float(np.mean(calls)), len(calls)
        for n in (2, 3, 5, 10):
            rate = false_rate(partial(_resample, rng, processes, n), "unknown", None, trials)
            yield f"H100 at {context}, drawn again {n} v {n}", *rate


def false_rate(
    draw: Callable[[], Sides], order: Order, floor: Callable[[], float] | None, trials: int
) -> tuple[float, int]:
    """Return the share called and of how many trials: of more where the first leave it open."""
    for num_trials in (trials, MORE * trials):
        count = sum(_count_called(draw, order, floor, n) for n in _blocks(num_trials))
        if upper_bound(count, num_trials) <= MAX_FALSE_FRAC:
            break
    return count / num_trials, num_trials


def upper_bound(count: int, trials: int) -> float:
    """Return the rate that so few of so many trials exclude at 95 % (Clopper and Pearson)."""
    return float(special.betaincinv(count + 1, trials - count, 0.95)) if count < trials else 1.0


def _blocks(num_trials: int) -> Iterator[int]:
    for start in range(0, num_trials, BLOCK):
        yield min(BLOCK, num_trials - start)


def _count_called(
    draw: Callable[[], Sides], order: Order, floor: Callable[[], float] | None, trials: int
) -> int:
    sides = [draw() for _ in range(trials)]
    floors = [floor() if floor else None for _ in range(trials)]
    return sum(
        _is_called(*sides[i], order, floors[i]) for i in np.flatnonzero(_may_be_called(sides))
    )


def _may_be_called(sides: list[Sides]) -> np.ndarray:
    """Return the sides that a pooled t test at 5 % separates: no others are ever called.

    What `estimate` adds only widens the error of that test. It has another form for many pairs.
    """
    num_a, num_b = len(sides[0][0]), len(sides[0][1])
    if min(num_a, num_b) >= MIN_PAIRS:
        return np.ones(len(sides), dtype=bool)
    log_a, log_b = (
        np.log([[np.median(group) for group in both[i]] for both in sides]) for i in (0, 1)
    )
    ratios = np.log([centre(b) / centre(a) for a, b in sides])
    freedom = num_a + num_b - 2
    power = (num_a - 1) * log_a.var(axis=1, ddof=1) + (num_b - 1) * log_b.var(axis=1, ddof=1)
    error = np.sqrt(power / freedom * (1 / num_a + 1 / num_b))
    return np.asarray(np.abs(ratios) >= special.stdtrit(freedom, 0.975) * error)


def _floor(rng: Rng, scenario: Scenario) -> float:
    """Measure the noise floor as `doctor --measure` does: over the medians of 6 processes."""
    a, b = scenario(rng, NUM_FLOOR_PROCESSES // 2, NUM_FLOOR_PROCESSES // 2)
    medians = [float(np.median(g)) for g in (*a, *b)]
    return (max(medians) - min(medians)) / float(np.median(medians))


def hidden_drift_rows(rng: Rng, trials: int) -> Iterator[tuple[str, float, int]]:
    """Yield what no test can rule out: files that do not say that all of A ran before all of B."""
    for n in (5, 10):
        calls = [_is_called(*block_drift(rng, n, n), "unknown") for _ in range(trials)]
        yield f"drift up to 1 % a process, {n} v {n}", float(np.mean(calls)), trials


def power_rows_of(rng: Rng, trials: int) -> Iterator[tuple[str, float, int]]:
    for n, goal in GOALS.items():
        for order in ("paired", "unknown"):
            for ratio, word in ((TRUE_RATIO, "slower"), (1 / TRUE_RATIO, "faster")):
                hits = 0
                for _ in range(trials):
                    a, b = quiet(rng, n, n)
                    hits += judge(a, [g * ratio for g in b], order=order).verdict == word
                yield f"{n} pairs, order {order}, {word} (goal {goal:.0%})", hits / trials, trials


def _is_called(a: Groups, b: Groups, order: Order, floor: float | None = None) -> bool:
    verdict = judge(a, b, order=order, noise_floor_frac=floor)
    return verdict.verdict in ("faster", "slower")


def load_real() -> dict[int, Groups]:
    """Return the samples of each process of the real A/A data by context length."""
    groups: dict[int, Groups] = {}
    for line in NOISE_FILE.read_text().splitlines():
        record = json.loads(line)
        groups.setdefault(record["seq"], []).append(np.array(record["lat_ms"]))
    return groups


def all_splits(processes: Groups, n: int) -> Iterator[tuple[Groups, Groups]]:
    indexes = set(range(len(processes)))
    for a in combinations(sorted(indexes), n):
        for b in combinations(sorted(indexes - set(a)), n):
            yield [processes[i] for i in a], [processes[i] for i in b]


def _resample(rng: Rng, processes: Groups, n: int) -> tuple[Groups, Groups]:
    """Draw processes and then their samples again, with replacement."""
    drawn = [rng.choice(processes[i], NUM_SAMPLES) for i in rng.integers(0, len(processes), 2 * n)]
    return drawn[:n], drawn[n:]


def interval_coverage(rng: Rng, trials: int) -> dict[str, float]:
    """Return how often the t interval and a hierarchical bootstrap hold the true ratio of 1."""
    hits = {"t interval of log medians": 0, "hierarchical bootstrap, 400 replicates": 0}
    for _ in range(trials):
        a, b = quiet(rng, 5, 5)
        low, high = judge(a, b).ci95 or (0.0, 0.0)
        hits["t interval of log medians"] += low <= 1 <= high
        ratios = [_drawn_median(rng, b) / _drawn_median(rng, a) for _ in range(400)]
        low, high = np.percentile(ratios, (2.5, 97.5))
        hits["hierarchical bootstrap, 400 replicates"] += bool(low <= 1 <= high)
    return {name: count / trials for name, count in hits.items()}


def _drawn_median(rng: Rng, groups: Groups) -> float:
    """Draw processes, then samples, and return the mean of log medians as a level."""
    stacked = np.array(groups)[rng.integers(0, len(groups), len(groups))]
    columns = rng.integers(0, NUM_SAMPLES, stacked.shape)
    return float(np.exp(np.log(np.median(np.take_along_axis(stacked, columns, 1), 1)).mean()))


if __name__ == "__main__":
    main()
