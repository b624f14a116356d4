"""The ranks of a run from its captures: what is stored, shown and judged of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.rundata import PassWarning, RunCapture
from analysis.trace.rank_numbers import RankPart
from analysis.trace.rank_times import JoinedRanks, join_ranks
from core.states import KERNEL_PASS_ORDER, Pass

RANK_UNITS = {
    "num_ranks": "count",
    "communication_frac": "fraction",
    "exposed_communication_frac": "fraction",
    "overlap_frac": "fraction",
    "step_skew_ns": "ns",
}
"""Numbers of a run's ranks among its metrics, with their units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRanks:
    """A run's ranks, and what is stored of them."""

    joined: JoinedRanks | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[PassWarning, ...] = ()


def ranks_of(captures: Sequence[RunCapture]) -> RunRanks:
    """Return the ranks by the captures of the pass that kernels come from.

    Sizes of collectives that only another pass recorded come from that one.
    """
    by_pass = {p: _parts([c for c in captures if c.pass_name == p]) for p in KERNEL_PASS_ORDER}
    primary = next((str(p) for p in KERNEL_PASS_ORDER if by_pass[p]), "")
    joined = join_ranks(by_pass.get(Pass(primary), [])) if primary else None
    if joined is None:
        return RunRanks()
    table, of_pass = joined.collectives, primary
    if not table["num_bytes"].notna().any():
        for name in map(str, KERNEL_PASS_ORDER):
            parts = by_pass[Pass(name)]
            if name == primary or not any(p.collectives["num_bytes"].notna().any() for p in parts):
                continue
            other = join_ranks(parts)
            if other is not None and other.collectives["num_bytes"].notna().any():
                table, of_pass = other.collectives, name
    document = {
        "ranks": records(joined.ranks),
        "collectives": records(table),
        "collectives_pass": of_pass,
        "steps": records(joined.steps),
        "exposed_by_kind": joined.exposed_by_kind,
        "missing": list(joined.missing),
        "is_aligned": joined.is_joined,
    }
    warnings = tuple(PassWarning(pass_name=primary, warning=w) for w in joined.warnings)
    return RunRanks(joined=joined, document=document, warnings=warnings)


def _parts(captures: Sequence[RunCapture]) -> list[RankPart]:
    return [
        RankPart(
            file_name=c.file_name,
            ranks=c.tables.ranks,
            collectives=c.tables.collectives,
            rank=c.rank,
        )
        for c in captures
        if c.tables.ranks is not None and c.tables.collectives is not None
    ]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain values; what is unknown is left out."""
    if frame.empty:
        return []
    columns = {name: frame[name].tolist() for name in frame.columns}
    return [
        {
            name: value.item() if hasattr(value, "item") else value
            for name, value in zip(columns, row, strict=True)
            if not (value is None or value is pd.NA or value != value)
        }
        for row in zip(*columns.values(), strict=True)
    ]


def summary_of(joined: JoinedRanks | None) -> dict[str, Any]:
    """Return the numbers of a run's ranks for its summary; {} for one that never communicates."""
    if joined is None:
        return {}
    ranks = joined.ranks
    summary: dict[str, Any] = {"num_ranks": len(ranks)}
    total = int(ranks["communication_ns"].sum())
    if not total:
        return summary if len(ranks) > 1 else {}
    summary["communication_frac"] = float((ranks["communication_ns"] / ranks["span_ns"]).mean())
    summary["exposed_communication_frac"] = float(ranks["exposed_frac"].mean())
    summary["overlap_frac"] = 1 - int(ranks["exposed_ns"].sum()) / total
    if len(joined.steps):
        summary["step_skew_ns"] = float(joined.steps["skew_ns"].median())
    return summary
