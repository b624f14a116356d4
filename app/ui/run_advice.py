"""What could be changed about a run, what that should give, and what it gave."""

from typing import Any

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.ui import data, links, style
from app.ui.format import UNKNOWN
from app.ui.widgets import plain_markdown, show_table
from core.errors import AppError
from core.numbers import decimal
from core.states import ACTIVE

LIVE = "3s"


def advice(view: RunView) -> None:
    """List the experiments of a run with their predictions, and offer to run them."""
    waits = _waits(data.fetch_advice(view.run.id))
    st.fragment(_listed, run_every=LIVE if waits else None)(view, waits)


def _waits(found: dict[str, Any]) -> bool:
    """Say whether an outcome is still being measured."""
    tried = [e["tried"] for e in found["experiments"] if e["tried"]]
    return any(t["status"] in ACTIVE for t in tried)


def _listed(view: RunView, waited: bool) -> None:
    found = data.fetch_advice(view.run.id)
    if waited and not _waits(found):
        st.rerun()
    st.caption(
        "Predicted from what this run itself did and what was measured of this device. An interval "
        "should hold 4 of 5 outcomes."
    )
    if not found["experiments"]:
        style.empty_state("No experiment to offer", found["note"] or "")
    for experiment in found["experiments"]:
        _card(view, experiment, can_try=found["can_try"])
    for left in found["not_offered"]:
        st.caption(plain_markdown(f"Not offered: {left['name']}. Why: {left['reason']}."))
    st.page_link(links.ADVICE, label="How predictions fared so far", icon=":material/target:")


def _card(view: RunView, experiment: dict[str, Any], *, can_try: bool) -> None:
    with st.container(border=True):
        left, right = st.columns([3, 2])
        left.markdown(f"**{plain_markdown(experiment['title'])}**")
        left.caption(plain_markdown("; ".join(experiment["evidence"])))
        left.caption(plain_markdown(experiment["note"]))
        right.markdown(plain_markdown(prediction_text(experiment)))
        right.markdown(plain_markdown(outcome_text(experiment)))
        for name, value in experiment["environment"].items():
            left.code(f"{name}={value}", language="sh")
        if experiment["lines"]:
            left.code("\n".join(experiment["lines"]), language="python")
        _actions(view, experiment, can_try=can_try)


def _actions(view: RunView, experiment: dict[str, Any], *, can_try: bool) -> None:
    bar = st.container(horizontal=True)
    outcome = (experiment["tried"] or experiment.get("measured") or {}).get("run_id")
    if outcome:
        bar.page_link(
            links.RUN, label="Its run", query_params={"run_id": outcome}, icon=":material/timer:"
        )
    elif can_try and bar.button(
        "Try it", key=f"try_{experiment['name']}", icon=":material/science:",
        help=f"Queue {experiment['name']} with at least 3 processes",
    ):  # fmt: skip
        _try(view, experiment["name"])


def _try(view: RunView, name: str) -> None:
    from app.advice import try_experiments

    try:
        with data.database() as db:
            try_experiments(db, data.paths(), view.run.id, [name])
    except AppError as exc:
        st.toast(plain_markdown(str(exc)), icon=":material/error:")
        return
    st.rerun()


def prediction_text(experiment: dict[str, Any]) -> str:
    """Return what is predicted, in words; nothing but that where the record is poor."""
    if experiment["status"] == "withheld":
        return "not predicted"
    shown = (experiment["tried"] or experiment)["predicted_ms"]
    if not experiment["is_worth_a_run"]:
        return f"predicted {decimal(shown['median'])} ms: no gain that could be told from noise"
    interval = (
        f"{decimal(shown['median'])} ms ({decimal(shown['low'])} to {decimal(shown['high'])} ms)"
    )
    if experiment["tried"]:
        return f"predicted {interval} when it was tried"
    return f"predicted {interval}, {experiment['gain_frac']:.0%} less" + (
        " a sequence" if "batch" in experiment["params"] else ""
    )


def outcome_text(experiment: dict[str, Any]) -> str:
    """Return what was measured and whether it lies inside the interval."""
    tried, found = experiment["tried"], experiment.get("measured")
    if tried and "measured_ms" not in tried:
        return f"being tried: {tried['status']}"
    if not tried and not found:
        return "not tried"
    measured_ms = tried["measured_ms"] if tried else found["latency_ms"] if found else 0.0
    is_inside = (tried or found or {})["is_inside"]
    return f"measured {decimal(measured_ms)} ms: {'hit' if is_inside else 'missed'}"


def score() -> None:
    """Draw the score: each kind's record, then every pair behind it."""
    found = data.fetch_score()
    limits = found["limits"]
    st.caption(
        "The record over all pairs in this database. A kind is offered while, over the pairs that "
        "came with Warpboard and what was tried here, its median error is at most "
        f"{limits['median_error_frac']:.0%} and at least {limits['inside_frac']:.0%} of the "
        "outcomes lie inside the stated interval."
    )
    if not found["pairs"]:
        style.empty_state("No prediction was measured yet", "Try an experiment on a run's page.")
    else:
        show_table(_kinds(found["kinds"]), alt="Record of each kind of change")
        st.subheader("Every prediction and its outcome")
        show_table(_pairs(found["pairs"]), alt="Predictions and outcomes")
    st.subheader("Not offered")
    for left in found["not_offered"]:
        st.markdown(plain_markdown(f"{left['name']}: {left['reason']}."))


def _kinds(kinds: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": [k["kind"] for k in kinds],
            "outcomes": [k["num_outcomes"] for k in kinds],
            "median error": [f"{k['median_error_frac']:.1%}" for k in kinds],
            "inside the interval": [f"{k['inside_frac']:.0%}" for k in kinds],
            "record": [
                "poor" if k["is_poor"] else "good" if k["is_known"] else UNKNOWN for k in kinds
            ],
        }
    )


def _pairs(pairs: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": [p["kind"] for p in pairs],
            "run": [p["base"] for p in pairs],
            "change": [p["experiment"] for p in pairs],
            "before, ms": [p["base_ns"] / 1e6 for p in pairs],
            "predicted, ms": [p["predicted_ns"] / 1e6 for p in pairs],
            "interval, ms": [
                f"{decimal(p['low_ns'] / 1e6)} to {decimal(p['high_ns'] / 1e6)}" for p in pairs
            ],
            "measured, ms": [p["measured_ns"] / 1e6 for p in pairs],
            "error": [f"{p['error_frac']:+.1%}" for p in pairs],
            "outcome": ["hit" if p["is_inside"] else "missed" for p in pairs],
        }
    )
