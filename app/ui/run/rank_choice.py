"""Which ranks a timeline shows: one of dozens of ranks would be metres long."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from analysis.runview import RunView

FEW = 8
"""As many ranks stand in a timeline at first; a run of no more has no choice."""
MOST = 32


def with_chosen_ranks(view: RunView) -> RunView:
    """Draw the choice of ranks where there are many; return the run with those ranks' spans."""
    rows = view.ranks.get("ranks", [])
    if len(rows) <= FEW or len(view.span_paths) <= FEW:
        return view
    by_rank = {row["rank"]: row for row in rows}
    first = telling_ranks(rows)
    chosen = st.multiselect(
        (
            f"Ranks; the default is {FEW} of {len(rows)}: those that arrive "
            "last and those that wait longest"
        ),
        sorted(by_rank),
        default=first,
        max_selections=MOST,
        key="timeline_ranks",
    )
    files = {by_rank[rank]["file_name"] for rank in chosen or first}
    captures = view.captures[view.captures["file_name"].isin(files)]
    names = {path.rpartition("/")[2] for path in captures["spans_path"].dropna()}
    return replace(view, span_paths=tuple(p for p in view.span_paths if p.name in names))


def telling_ranks(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ranks that come last and those that wait longest, FEW together, in order."""
    late = sorted(rows, key=lambda row: (-row.get("late_ns", 0), row["rank"]))
    waiting = sorted(rows, key=lambda row: (-row.get("wait_ns", 0), row["rank"]))
    shown = dict.fromkeys(row["rank"] for pair in zip(late, waiting, strict=True) for row in pair)
    return sorted(list(shown)[:FEW])
