"""Figures that others have published: read from the files in `published`, never mixed with ours.

One row a figure: source, what was run, metric, value, unit and status (ok, oom, missing). The text
of a value is kept as its author printed it, so that a table can show it unchanged.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATHS = tuple(
    Path(__file__).with_name("published") / name for name in ("figures.csv", "figures2.csv")
)
FIELDS = (
    "gpu",
    "workload",
    "model",
    "mode",
    "compile",
    "dtype",
    "batch",
    "seq_len",
    "d_model",
    "heads",
)
GPU_NOT_NAMED = "GPU not named"
_OUR_WORDS = {"train_forward": "train_step/forward", "train_backward": "train_step/backward"}
"""Field values that the files have in two spellings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published number, or a cell that its author marked as out of memory or left empty."""

    source: str
    fields: tuple[tuple[str, str], ...]
    "FIELDS that the source states, with their text; the GPU is `GPU not named` where it is not."
    metric: str
    text: str
    "The value as printed; empty unless status is ok."
    unit: str
    status: str
    "ok, oom, missing."

    @property
    def value(self) -> float | None:
        """The number; None for a name or a missing number."""
        return float(self.text) if self.text and self.unit != "name" else None


@cache
def load_figures() -> tuple[Figure, ...]:
    """Return every published figure in the order of the files. Reads them once."""
    figures: list[Figure] = []
    for path in PATHS:
        with path.open(encoding="utf-8", newline="") as lines:
            figures += [_figure(row) for row in csv.DictReader(lines)]
    return tuple(figures)


def sources() -> tuple[str, ...]:
    """Return the names of the sources in the order of the file."""
    return tuple(dict.fromkeys(f.source for f in load_figures()))


def _figure(row: dict[str, str]) -> Figure:
    fields = [(name, _OUR_WORDS.get(row[name], row[name])) for name in FIELDS if row[name]]
    if not row["gpu"]:
        fields.insert(0, ("gpu", GPU_NOT_NAMED))
    return Figure(
        source=row["source"],
        fields=tuple(fields),
        metric=row["metric"],
        text=row["value"],
        unit=row["unit"],
        status=row["status"],
    )
