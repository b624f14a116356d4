"""How predictions fared: which pairs count, the record of each kind, and what it does to intervals.

A pair is two jobs on one GPU model that differ in what an experiment changes. Pairs of the example
data were split before any constant was set, by a hash of what the two jobs share: an even hash may
set constants, an odd one is held out. Only held-out pairs, and pairs measured after the
constants were set, are scored.
"""

import csv
import hashlib
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from core.spec import canonical_json

CHANGED_PARAMS = (
    "attention", "backend", "batch", "compile", "cuda_graph", "dtype", "fused_optimizer",
    "implementation", "kv_cache", "settings", "weights",
)  # fmt: skip
"""Params that an experiment changes: jobs that share all others are one family."""
MAX_MEDIAN_ERROR_FRAC = 0.2
MIN_INSIDE_FRAC = 0.8
MIN_OUTCOMES = 2
"""Fewer outcomes are too few to judge a kind by."""
SHIPPED = Path(__file__).with_name("record.csv")
"""Held-out outcomes on the example data, so that a new database knows the models' record."""
LATER = Path(__file__).with_name("record_later.csv")
"""Outcomes of jobs that were chosen, and measured by others, after the models were written; each as
it was predicted then, and again where the formula has changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A prediction and what was measured."""

    kind: str
    experiment: str
    gpu_model: str
    base: str
    "Name of the base's run."
    predicted_ns: float
    low_ns: float
    high_ns: float
    measured_ns: float
    base_ns: float
    model_version: int

    @property
    def error_frac(self) -> float:
        """predicted / measured - 1."""
        return self.predicted_ns / self.measured_ns - 1

    @property
    def is_inside(self) -> bool:
        return self.low_ns <= self.measured_ns <= self.high_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How a kind of change was predicted so far."""

    kind: str
    num_outcomes: int
    median_error_frac: float
    "Median of |predicted / measured - 1|."
    inside_frac: float
    "Share of outcomes inside the stated interval."
    width: float
    "What would have held 80 % of the outcomes: quantile of |ln(predicted / measured)|."

    @property
    def is_known(self) -> bool:
        return self.num_outcomes >= MIN_OUTCOMES

    @property
    def is_poor(self) -> bool:
        return self.is_known and (
            self.median_error_frac > MAX_MEDIAN_ERROR_FRAC or self.inside_frac < MIN_INSIDE_FRAC
        )


def is_held_out(gpu_model: str | None, workload: str | None, params: Mapping[str, Any]) -> bool:
    """Say whether pairs of this job may not set constants: SHA-256 of its family is odd.

    The family is GPU model, workload and all params that no experiment changes, joined by `|`; the
    first 8 hex digits count. Programs that are not ours set no constant: all of them are held out.
    """
    if workload == "command":
        return True
    shared = {k: v for k, v in params.items() if k not in CHANGED_PARAMS}
    text = "|".join((gpu_model or "", workload or "", canonical_json(shared)))
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % 2 == 1


def records_of(outcomes: Iterable[Outcome]) -> dict[str, Record]:
    """Return the record of each kind, by kind."""
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    return {kind: _record(kind, outcomes_of) for kind, outcomes_of in sorted(by_kind.items())}


def _record(kind: str, outcomes: Sequence[Outcome]) -> Record:
    logs = [abs(math.log(x.predicted_ns / x.measured_ns)) for x in outcomes]
    return Record(
        kind=kind,
        num_outcomes=len(outcomes),
        median_error_frac=statistics.median(abs(x.error_frac) for x in outcomes),
        inside_frac=sum(x.is_inside for x in outcomes) / len(outcomes),
        width=float(np.quantile(logs, MIN_INSIDE_FRAC)),
    )


class AssumedWidths(Mapping[str, Record]):
    """Records under which every kind is offered with its assumed interval: for the score itself."""

    def __getitem__(self, kind: str) -> Record:
        return Record(
            kind=kind, num_outcomes=MIN_OUTCOMES, median_error_frac=0.0, inside_frac=1.0, width=0.0
        )

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def shipped_outcomes() -> list[Outcome]:
    """Return the outcomes that come with the program, each as the newest models predicted it."""
    newest: dict[tuple[str, str], Outcome] = {}
    for outcome in (*read_outcomes(SHIPPED), *read_outcomes(LATER)):
        before = newest.setdefault((outcome.base, outcome.experiment), outcome)
        if outcome.model_version > before.model_version:
            newest[outcome.base, outcome.experiment] = outcome
    return list(newest.values())


def read_outcomes(path: Path) -> list[Outcome]:
    """Return the outcomes of a file, one a row."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_outcome(row) for row in csv.DictReader(file)]


def _outcome(row: Mapping[str, str]) -> Outcome:
    values: dict[str, Any] = dict(row)
    for field in fields(Outcome):
        if field.type in (float, int):
            values[field.name] = field.type(float(row[field.name]))
    return Outcome(**values)
