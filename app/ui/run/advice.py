"""Experiments on a run: the change, the predicted gain, the measured one."""

from typing import Any

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.ui import cached, data, links, style
from app.ui.format import count, duration, fixed_format, many, percent, with_micro
from app.ui.tables import show_table
from app.ui.widgets import Card, cards, plain_markdown
from core.errors import AppError
from core.states import ACTIVE

LIVE = "3s"
NS_PER_MS = 1e6


def advice(view: RunView) -> None:
    """List the experiments of a run with their predictions, and offer to run them."""
    waits = _waits(data.fetch_advice(view.run.id))
    st.fragment(_listed, run_every=LIVE if waits else None)(view, waits)


def _waits(advice: dict[str, Any]) -> bool:
    """Say whether an outcome is still being measured."""
    tried = [e["tried"] for e in advice["experiments"] if e["tried"]]
    return any(t["status"] in ACTIVE for t in tried)


def _listed(view: RunView, waited: bool) -> None:
    advice = data.fetch_advice(view.run.id)
    if waited and not _waits(advice):
        st.rerun()
    st.caption(
        "Predicted from this run and the peaks measured on this device. An "
        "interval should contain 4 of 5 outcomes."
    )
    if not advice["experiments"]:
        style.empty_state("No experiment to suggest", advice["note"] or "")
    for experiment in advice["experiments"]:
        _card(view, experiment, can_try=advice["not_tried"] is None)
    if advice["not_tried"] and any(e["environment"] for e in advice["experiments"]):
        st.caption(plain_markdown(f"No setting can be tried here: {advice['not_tried']}."))
    if left_out := advice["not_offered"]:
        with st.expander(f"Not offered ({len(left_out)})", icon=":material/block:"):
            st.markdown(_reasons(left_out))
    st.page_link(links.ADVICE, label="How predictions fared so far", icon=":material/target:")


def _card(view: RunView, experiment: dict[str, Any], *, can_try: bool) -> None:
    with st.container(border=True):
        left, right = st.columns([3, 2])
        with left.container(gap="xxsmall"):
            st.markdown(f"**{plain_markdown(experiment['title'])}**")
            st.caption(plain_markdown(with_micro("; ".join(experiment["evidence"]))))
            st.caption(plain_markdown(experiment["note"]))
        with right.container(gap="xxsmall"):
            st.markdown(plain_markdown(prediction_text(experiment)))
            st.markdown(plain_markdown(outcome_text(experiment)))
        for name, value in experiment["environment"].items():
            left.code(f"{name}={value}", language="sh")
        if experiment["environment"] and "command" in experiment:
            left.caption("The whole command:")
            left.code(experiment["command"], language="sh", wrap_lines=True)
        if experiment["lines"]:
            left.code("\n".join(experiment["lines"]), language="python")
        with right:
            _action(view, experiment, can_try=can_try)


def _action(view: RunView, experiment: dict[str, Any], *, can_try: bool) -> None:
    outcome = (experiment["tried"] or experiment.get("measured") or {}).get("run_id")
    if outcome:
        st.page_link(
            links.RUN, label="Its run", query_params={"run_id": outcome}, icon=":material/timer:"
        )
    elif can_try and experiment["params"] and st.button(
        "Try it", key=f"try_{experiment['name']}", icon=":material/science:",
        help=f"Queue {experiment['name']} with at least 3 processes",
    ):  # fmt: skip
        _try(view, experiment["name"])


def _try(view: RunView, name: str) -> None:
    from app.advice import try_experiments

    try:
        with cached.database() as db:
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
        return f"predicted {_ms(shown['median'])}: no gain beyond noise"
    interval = f"{_ms(shown['median'])} ({_ms(shown['low'])} to {_ms(shown['high'])})"
    if experiment["tried"]:
        return f"predicted {interval} when it was tried"
    return f"predicted {interval}, {percent(experiment['gain_frac'])} less" + (
        " a sequence" if "batch" in experiment["params"] else ""
    )


def _ms(value: float) -> str:
    return duration(value * NS_PER_MS)


def outcome_text(experiment: dict[str, Any]) -> str:
    """Return what was measured and whether it lies inside the interval."""
    tried, measured = experiment["tried"], experiment.get("measured")
    if tried and "measured_ms" not in tried:
        return f"being tried: {tried['status']}"
    if not tried and not measured:
        return "not tried"
    measured_ms = tried["measured_ms"] if tried else measured["latency_ms"] if measured else 0.0
    is_inside = (tried or measured or {})["is_inside"]
    return f"measured {_ms(measured_ms)}: {'hit' if is_inside else 'missed'}"


def score() -> None:
    """Draw the score: all predictions in three numbers, each kind's record, then every pair."""
    record = data.fetch_score()
    pairs = record["pairs"]
    if pairs:
        cards(_score_cards(record))
        st.subheader("By kind of change", anchor=False)
        show_table(_kinds(record["kinds"]), alt="Record of each kind of change")
        st.caption(
            "A kind of change is offered if its predictions were good, over the "
            "pairs shipped with Warpboard and the experiments tried here; its "
            "own misses widen its intervals."
        )
        st.subheader("Every prediction and its outcome", anchor=False)
        table = _pairs(pairs)
        show_table(
            table,
            columns=_times(table),
            most_px=520,
            alt="Predictions and outcomes",
        )
    else:
        style.empty_state("No prediction has been tested yet", "Try an experiment on a run's page.")
    st.subheader("Not offered", anchor=False)
    st.markdown(_reasons(record["not_offered"]))


def _reasons(left_out: list[dict[str, Any]]) -> str:
    """Return changes that are not offered as a list, each with its reason."""
    return "\n".join(
        f"- **{plain_markdown(left['name'])}**: {plain_markdown(left['reason'])}."
        for left in left_out
    )


def _score_cards(record: dict[str, Any]) -> list[Card]:
    pairs, limits, overall = record["pairs"], record["limits"], record["overall"]
    kinds = len({p["kind"] for p in pairs})
    return [
        Card(
            label="Predictions measured",
            value=count(len(pairs)),
            note=f"of {many(kinds, 'kind')} of change, on pairs of this database",
            definition="Pairs of jobs that differ by one experiment; the "
            "prediction uses only the first job's run.",
        ),
        Card(
            label="Inside their interval",
            value=percent(overall["inside_frac"]),
            note=f"{count(overall['num_inside'])} of {count(len(pairs))}; required: "
            f"{percent(limits['inside_frac'])} for each kind",
            definition="Outcomes inside the interval predicted beforehand.",
        ),
        Card(
            label="Median error",
            value=percent(overall["median_error_frac"]),
            note=f"required: at most {percent(limits['median_error_frac'])} for each kind",
            definition="Median of |predicted / measured - 1|.",
        ),
    ]


_KIND_WORDS = {
    "allocator": "expandable segments",
    "attention": "fused attention",
    "attention_triton": "Triton attention",
    "batch": "larger batch",
    "compile": "torch.compile",
    "compile_graph": "torch.compile with CUDA graphs",
    "compile_host": "torch.compile if host-bound",
    "dtype": "narrower dtype",
    "graph": "CUDA graph",
    "optimizer": "fused optimizer",
    "pinned_copies": "pinned host memory",
    "tf32": "TF32",
    "threads": "CPU threads",
}


def _kind(name: str) -> str:
    kind, sign, where = name.partition(" (")
    return _KIND_WORDS.get(kind, kind.replace("_", " ")) + sign + where


def _kinds(kinds: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": [_kind(k["kind"]) for k in kinds],
            "record": [
                "poor" if k["is_poor"] else "good" if k["is_known"] else "too few" for k in kinds
            ],
            "outcomes": [k["num_outcomes"] for k in kinds],
            "median error %": [100 * k["median_error_frac"] for k in kinds],
            "inside the interval %": [100 * k["inside_frac"] for k in kinds],
        }
    )


def _pairs(pairs: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": [_kind(p["kind"]) for p in pairs],
            "run": [p["base"] for p in pairs],
            "change": [p["experiment"] for p in pairs],
            "outcome": ["hit" if p["is_inside"] else "missed" for p in pairs],
            "error %": [100 * p["error_frac"] for p in pairs],
            "before ms": [p["base_ns"] / NS_PER_MS for p in pairs],
            "predicted ms": [p["predicted_ns"] / NS_PER_MS for p in pairs],
            "from ms": [p["low_ns"] / NS_PER_MS for p in pairs],
            "to ms": [p["high_ns"] / NS_PER_MS for p in pairs],
            "measured ms": [p["measured_ns"] / NS_PER_MS for p in pairs],
        }
    )


def _times(table: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of times: all with the same decimals."""
    times = [name for name in table if name.endswith(" ms")]
    shown = fixed_format(v for name in times for v in table[name])
    return dict.fromkeys(times, st.column_config.NumberColumn(format=shown))
