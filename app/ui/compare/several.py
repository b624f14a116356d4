"""More than two measurements: each against its partner, and the one that the page then explains."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from analysis.colours import BAD, GOOD, NEUTRAL
from analysis.compare.labels import metric_text
from analysis.compare.records import Comparison, Pair
from app.charts.compare import intervals
from app.ui.format import UNKNOWN, significant
from app.ui.tables import show_table
from app.ui.widgets import chart, linked_select, plain_markdown

ACCENTS = {"faster": GOOD, "slower": BAD}


def measurements(comparison: Comparison) -> None:
    """Draw every measurement of side B: medians, ratio with its interval, verdict and reason."""
    firsts = {pair.a.run_ids for pair in comparison.pairs}
    title = f"{len(comparison.pairs)} measurements against "
    st.subheader(title + ("the first" if len(firsts) == 1 else "their partners"), anchor=False)
    unit = f" {comparison.unit}" if comparison.unit else ""
    metric = metric_text(comparison.metric, comparison.device)
    rows = [
        {
            "B": pair.b.label,
            "against A": pair.a.label,
            "differs": pair.what,
            f"A{unit}": _value(pair.a.median),
            f"B{unit}": _value(pair.b.median),
            "B / A": _value(pair.ratio),
            "95 % interval": _interval(pair),
            "processes": f"{pair.a.n_processes}, {pair.b.n_processes}",
            "verdict": pair.verdict.replace("_", " "),
            "why": pair.reason,
        }
        for pair in comparison.pairs
    ]
    table = pd.DataFrame(rows)
    if len(firsts) == 1:
        st.caption(plain_markdown(f"{metric}; A is {comparison.pairs[0].a.label}."))
        table = table.drop(columns="against A")
    show_table(
        table,
        most_px=420,
        alt="Each measurement of side B against its counterpart on side A",
    )
    known = [
        (pair.b.label, pair.ratio, pair.ci95, ACCENTS.get(pair.verdict, NEUTRAL))
        for pair in comparison.pairs
        if pair.ratio is not None
    ]
    if known:
        chart(intervals(known), alt="Ratio of each measurement with its 95 % interval")


def chosen(pairs: Sequence[Pair]) -> Pair:
    """Let one pair be chosen, which the rest of the page explains; it is in the page's address."""
    by_ids = {",".join(pair.b.run_ids): pair for pair in pairs}
    ids = linked_select(
        st,
        "Explain",
        list(by_ids),
        param="pair",
        format_func=lambda key: f"{by_ids[key].b.label} against {by_ids[key].a.label}",
    )
    return by_ids[ids]


def _value(value: float | None) -> str:
    return UNKNOWN if value is None else significant(value, 4)


def _interval(pair: Pair) -> str:
    if pair.ci95 is None:
        return UNKNOWN
    inside = " inside one process" if pair.ci95_basis == "samples" else ""
    return f"{_bound(pair.ci95[0])} to {_bound(pair.ci95[1])}{inside}"


def _bound(ratio: float) -> str:
    """Return an end of an interval; one that is a thousand off says no more than that."""
    if ratio > 1000 or ratio < 0.001:
        return "over 1000" if ratio > 1 else "under 0.001"
    return f"{ratio:.3f}" if ratio < 10 else significant(ratio)
