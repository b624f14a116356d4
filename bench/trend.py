"""Are slow-downs found in a nightly history, and how often is a quiet night called one?

    python -m bench.trend [--histories 400] [--seed 1]

Prints a table and, last, one JSON line. A history is 60 nights of one job; a night's number is the
median over its processes, whose noise is that of the measured floors: a floor is the range of six
processes (2.53 standard deviations), 2.4 % of GPU-bound and 34 % of launch-bound work on the H100
and H200 of the example data. Rows "as on the H100" draw the processes of launch-bound decode that
were measured there (`tests/data/h100/noise`): most lie close together, a third far above; of them
"fastest quarter" follows the lower quartile of the processes. In half of the histories the job gets
8 % slower at a night from the 21st to the 57th. The goal of every row: found within 3 nights in at
least 95 % of the histories, and at most one false alarm in 1 000 quiet nights. Rows that miss it
say so, and which step the history itself says that it would see ("sees", of the 40th night). The
constants of the method were chosen on trial runs of this simulation. Takes about two minutes on one
core.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from analysis.history.changes import RANGE_OF_SIX, find_steps, smallest_seen
from bench.verdicts import load_real

NIGHTS = 60
SLOWER = 1.08
FIRST_PLACE, LAST_PLACE = 20, 56
WITHIN = 3
GPU_FLOOR, LAUNCH_FLOOR = 0.024, 0.34
MAX_FALSE_PER_1000 = 1.0
GOAL_FOUND = 0.95
"""Share of slow-downs to be found within WITHIN nights."""
Rng = np.random.Generator
Nights = Callable[[Rng, np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A kind of history."""

    name: str
    floor_frac: float | None
    num_processes: int
    between_nights: Nights | None = None
    is_measured: bool = False
    "Processes are drawn from measured ones, else from normal noise as wide as the floor."
    quantile: float = 0.5
    "Which of the night's processes is followed."


def night_to_night(rng: Rng, nights: np.ndarray) -> np.ndarray:
    """Add 1 % from night to night: another node, another temperature."""
    return nights * np.exp(rng.normal(0.0, 0.01, len(nights)))


def alike_nights(rng: Rng, nights: np.ndarray) -> np.ndarray:
    """Add a level that wanders by 1 %: neighbouring nights are alike (autocorrelation 0.6)."""
    level, levels = 0.0, []
    for step in rng.normal(0.0, 0.008, len(nights)):
        level = 0.6 * level + step
        levels.append(level)
    return nights * np.exp(levels)


def odd_nights(rng: Rng, nights: np.ndarray) -> np.ndarray:
    """Make one night in twenty 5 to 50 % slower: another user was on the machine."""
    is_odd = rng.random(len(nights)) < 0.05
    return nights * np.where(is_odd, rng.uniform(1.05, 1.5, len(nights)), 1.0)


SCENARIOS = (
    Scenario(name="GPU-bound, 5 processes", floor_frac=GPU_FLOOR, num_processes=5),
    Scenario(name="GPU-bound, 1 process", floor_frac=GPU_FLOOR, num_processes=1),
    Scenario(
        name="GPU-bound, 5 processes, 1 % from night to night",
        floor_frac=GPU_FLOOR,
        num_processes=5,
        between_nights=night_to_night,
    ),
    Scenario(
        name="launch-bound, 50 processes",
        floor_frac=LAUNCH_FLOOR,
        num_processes=50,
    ),
    Scenario(name="launch-bound, 20 processes", floor_frac=LAUNCH_FLOOR, num_processes=20),
    Scenario(name="launch-bound, 5 processes", floor_frac=LAUNCH_FLOOR, num_processes=5),
    Scenario(
        name="GPU-bound, 5 processes, neighbouring nights alike",
        floor_frac=GPU_FLOOR,
        num_processes=5,
        between_nights=alike_nights,
    ),
    Scenario(
        name="GPU-bound, 5 processes, one odd night in twenty",
        floor_frac=GPU_FLOOR,
        num_processes=5,
        between_nights=odd_nights,
    ),
    *(
        Scenario(
            name=f"launch-bound as on the H100, {count} processes{name}",
            floor_frac=LAUNCH_FLOOR if quantile == 0.5 else None,
            num_processes=count,
            is_measured=True,
            quantile=quantile,
        )
        for count in (5, 20, 50)
        for quantile, name in ((0.5, ""), (0.25, ", fastest quarter"))
    ),
)
JITTER = 0.02
"""Added to each drawn process: only twelve were measured."""


def make_history(rng: Rng, scenario: Scenario, slower_at: int | None = None) -> np.ndarray:
    """Return a number a night, in ms; `slower_at` is the first slow night."""
    shape = (NIGHTS, scenario.num_processes)
    if scenario.is_measured:
        processes = np.exp(rng.choice(_measured(), shape) + rng.normal(0.0, JITTER, shape))
    else:
        processes = np.exp(rng.normal(0.0, (scenario.floor_frac or 0.0) / RANGE_OF_SIX, shape))
    nights = 2.3 * np.quantile(processes, scenario.quantile, axis=1)
    if scenario.between_nights:
        nights = scenario.between_nights(rng, nights)
    if slower_at is not None:
        nights[slower_at:] *= SLOWER
    return nights


@cache
def _measured() -> np.ndarray:
    """Return the measured processes as logarithms around the middle one of their job."""
    jobs = [np.log([np.median(group) for group in job]) for job in load_real().values()]
    return np.concatenate([logs - np.median(logs) for logs in jobs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one scenario."""

    name: str
    found_frac: float
    "Share of slow-downs called within WITHIN nights."
    ever_frac: float
    median_nights: float | None
    false_per_1000: float
    sees_frac: float
    "Step that the history says would be called within WITHIN nights, of its 40th night."

    @property
    def meets_goal(self) -> bool:
        return self.found_frac >= GOAL_FOUND and self.false_per_1000 <= MAX_FALSE_PER_1000


def measure(rng: Rng, scenario: Scenario, histories: int) -> Row:
    """Return the rates of one scenario; every alarm in a quiet history is a false one."""
    num_false, sees = 0, []
    for _ in range(histories):
        quiet = make_history(rng, scenario).tolist()
        num_false += len(find_steps(quiet, scenario.floor_frac))
        sees.append(smallest_seen(quiet[:40], (), scenario.floor_frac) or 0.0)
    delays = [d for _ in range(histories) if (d := _delay(rng, scenario)) is not None]
    return Row(
        name=scenario.name,
        found_frac=sum(d <= WITHIN for d in delays) / histories,
        ever_frac=len(delays) / histories,
        median_nights=float(np.median(delays)) if delays else None,
        false_per_1000=1000 * num_false / (histories * NIGHTS),
        sees_frac=float(np.median(sees)),
    )


def _delay(rng: Rng, scenario: Scenario) -> int | None:
    """Return after how many slow nights the slow-down is called; None for never."""
    at = int(rng.integers(FIRST_PLACE, LAST_PLACE + 1))
    steps = find_steps(make_history(rng, scenario, at).tolist(), scenario.floor_frac)
    return next((s.found_index - at + 1 for s in steps if s.found_index >= at), None)


def lines(rows: list[Row], histories: int) -> Iterator[str]:
    yield f"{histories} histories of {NIGHTS} nights a row, and as many with an 8 % slow-down"
    yield f"{'':57} in {WITHIN} nights  ever  median  false/1 000    sees"
    for row in rows:
        median = f"{row.median_nights:.0f}" if row.median_nights else "-"
        goal = "" if row.meets_goal else "  misses the goal"
        yield (
            f"{row.name:57} {row.found_frac:11.1%} {row.ever_frac:5.0%} {median:>7}"
            f" {row.false_per_1000:12.2f} {row.sees_frac:7.1%}{goal}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Slow-downs found, and false alarms, by night.")
    parser.add_argument("--histories", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    rows = [measure(rng, scenario, args.histories) for scenario in SCENARIOS]
    print("\n".join(lines(rows, args.histories)))
    document = {
        "histories": args.histories,
        "found_frac": {row.name: row.found_frac for row in rows},
        "false_per_1000": {row.name: row.false_per_1000 for row in rows},
        "meets_goals": all(row.meets_goal for row in rows),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
