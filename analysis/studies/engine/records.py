"""The records a study is declared with, and those it becomes."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True)
class Value:
    """One measured number of a table. A study lists them as rows: key, label, unit, measure."""

    key: str
    label: str
    unit: str
    measure: str
    "A name in `measures.MEASURES`, or `metric:NAME`; empty for what only publications have."
    published: tuple[str, ...] = ()
    "Metrics of published figures that are this number; `name:*` puts what follows into `extra`."
    _: KW_ONLY
    extra: str | None = None
    "Field that the measure adds to the run's own: kernel, category, origin, phase."
    published_field: str = ""
    "Field in which published figures have `extra`: a call's name stands as their model."
    named_by: str = ""
    "Metric of published figures that gives `extra` its value: the name of the longest kernel."
    relative_to: tuple[str, str] | None = None
    "(field, value): show the value there divided by this one (a speed-up for times)."
    is_overhead: bool = False
    "With `relative_to`: show by how many percent this one is more than the value there."
    published_ratio: tuple[str, ...] = ()
    "Metrics of published figures that are this ratio already; they go before a derived one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """How a table is drawn; the axes are fields of the tidy frame."""

    kind: str
    """loglog, bars, stacked (parts of a whole, one bar a row) or heatmap. Bars whose colour is a
    column of the table stand one group a row."""
    x: str
    colour: str
    value: str
    "Key of the value that is drawn."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A power law: value ~ x ** exponent, one for each group."""

    x: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a study: which fields go down, which go across, which numbers."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()
    values: tuple[Value, ...]
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    "Field -> allowed values, in addition to the study's filters."
    needs: tuple[str, ...] = ()
    "Fields that a run must have: without one it has no place in the table."
    compares: str = ""
    """Field whose values are set against each other: where some of our jobs have several of them,
    those with one alone are left out."""
    sources: tuple[str, ...] = ()
    "Published sources laid beside; their figures must also meet `where`."
    chart: Chart | None = None
    fit: Fit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question that is asked of many runs at once. One file each."""

    name: str
    title: str
    question: str
    "What it answers, in one sentence."
    about: str
    filters: Mapping[str, tuple[str, ...]]
    "Field -> allowed values of the runs that take part."
    tables: tuple[Table, ...]
    job: Mapping[str, Any] = field(default_factory=dict)
    "A job that fills a first cell: workload, params, profilers, repeats."
    is_publication: bool = False
    "True for a study that lays out the tables of one published source."

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that its tables show."""
        names = (value.measure for table in self.tables for value in table.values)
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a pivot. `text` is what is shown."""

    text: str
    value: float | None
    unit: str
    status: str
    "ok, oom, missing."
    provenance: str
    "measured or published."
    source: str | None = None
    run_ids: tuple[str, ...] = ()
    job: Mapping[str, Any] | None = None
    "For a missing cell of ours: the job that would fill it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pivot:
    """A table ready to print: header rows and columns are texts."""

    title: str
    row_fields: tuple[str, ...]
    "The first is always `from`: measured, or published with its source."
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRow:
    """The fitted exponent of one group."""

    table: str
    of: str
    "What grows, with its unit: `latency (ms)`."
    x: str
    "The field it grows with."
    group: tuple[tuple[str, str], ...]
    provenance: str
    exponent: float
    ci95: tuple[float, float] | None
    "None with two points: a line through two points has no error to estimate."
    num_points: int
    label: str
    "The fields that tell this group from the others of its table."
    tail_exponent: float | None
    """The exponent of the TAIL_POINTS largest x alone; None where there are no more than those.
    Small jobs wait for launches, and the line through all points bends for it."""
    tail_ci95: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """What a study found."""

    study: Study
    frame: pd.DataFrame
    """Tidy: table, from, provenance, source, value_key, value, text, unit, status, ci_low, ci_high,
    run_ids, and a column of texts for each field."""
    pivots: tuple[Pivot, ...]
    fits: tuple[FitRow, ...]
    jobs: tuple[Mapping[str, Any], ...]
    "Jobs that would fill the missing cells (the study's first job when there is no run at all)."
    notes: tuple[str, ...]
