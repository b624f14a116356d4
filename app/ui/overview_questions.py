"""Start from a question: what got slower, what would be faster, which of two is faster."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from analysis.compare.offered import Offer
from analysis.history.check import DEFAULT_NEW
from app.ui import data, links, trends_view
from app.ui.format import gpu_name, many
from app.ui.run_advice import prediction_text
from app.ui.widgets import card_border, plain_markdown

MAX_ROWS = 4
ADVISED_RUNS = 3
"""Newest runs on a GPU whose experiments are looked at."""
_SHOWN = ("preset", "mode", "dtype", "batch", "context", "seq_len", "compile", "attention")


def questions() -> Callable[[], None]:
    """Draw a card for each question that the stored runs can answer.

    Return what fills the card of experiments, to be called last: predictions take a second the
    first time, and the page is there meanwhile.
    """
    st.subheader("Start from a question", anchor=False)
    grid = st.grid("auto", min_column_width=330, border=True, gap="small")
    with grid.cell():
        _card("Did anything change?", ":material/timeline:", _changes)
    place = grid.cell()
    with grid.cell():
        _card("Which is faster?", ":material/compare_arrows:", _comparisons)

    def experiments() -> None:
        with place:
            _card("What would make it faster?", ":material/target:", _experiments)

    return experiments


def _card(title: str, icon: str, draw: Callable[[], bool]) -> None:
    with card_border(title), st.container(gap="xxsmall"):
        st.markdown(f"{icon} **{title}**")
        if not draw():
            st.caption(_NOTHING[title])


_NOTHING = {
    "Did anything change?": "Nothing: no job's newest runs left their level. A job needs seven "
    "runs to have one.",
    "What would make it faster?": "No experiment is predicted to be worth a run of the newest "
    "runs on a GPU.",
    "Which is faster?": "No two runs differ in just one field yet.",
}


def _changes() -> bool:
    """Draw the largest changes of the newest runs; False where there is none."""
    found = data.new_changes(DEFAULT_NEW)
    for past, line, change in found[:MAX_ROWS]:
        word = "worse" if change.is_worse else "better"
        st.page_link(
            links.TRENDS,
            label=plain_markdown(
                f"{line.trend.label} {change.percent:+.1f} %, {word}: {past.job.name}"
            ),
            query_params=trends_view.address_of(past.job),
        )
    if (more := len(found) - MAX_ROWS) > 0:
        st.page_link(links.TRENDS, label=many(more, "more change"))
    return bool(found)


def _experiments() -> bool:
    """Draw the experiments that are predicted to gain most; False where there is none."""
    newest, _ = data.list_runs("status:done -gpu:cpu", limit=ADVISED_RUNS)
    found: list[tuple[str, str, Mapping[str, Any]]] = []
    for row in newest.to_dict("records"):
        advice = data.fetch_advice_lately(str(row["id"]))
        found += [
            (str(row["id"]), str(row["name"]), e)
            for e in advice.get("experiments", ())
            if e["is_worth_a_run"] and e["status"] != "withheld" and not e["tried"]
            and not e.get("measured")
        ]  # fmt: skip
    found.sort(key=lambda one: -one[2]["gain_frac"])
    for run_id, name, experiment in found[:MAX_ROWS]:
        st.page_link(
            links.RUN,
            label=plain_markdown(f"{experiment['title']}: {name}"),
            query_params={"run_id": run_id, "tab": "Advice"},
        )
        st.caption(plain_markdown(prediction_text(dict(experiment))))
    return bool(found)


def _comparisons() -> bool:
    """Draw comparisons that someone began, then those that the runs offer; False without any."""
    begun = data.begun_comparisons()[:2]
    for one in begun:
        waiting = f", {one.num_waiting} waiting" if one.num_waiting else ""
        st.page_link(
            links.COMPARE,
            label=plain_markdown(
                f"{one.name or 'two jobs in turn'}: {len(one.a)} and {len(one.b)} runs{waiting}"
            ),
            query_params={"a": ",".join(one.a), "b": ",".join(one.b)},
        )
    offered = data.offered_comparisons(MAX_ROWS)[: MAX_ROWS - len(begun)]
    for offer in offered:
        link_of(offer)
    if offered:
        st.page_link(links.COMPARE, label="More pairs that differ in one field")
    return bool(begun or offered)


def link_of(offer: Offer) -> None:
    """Draw the way to an offered comparison."""
    values = [gpu_name(v) for v in offer.values] if offer.variable == "gpu" else offer.values
    shown = " ".join(f"{k} {offer.same[k]}" for k in _SHOWN if offer.same.get(k) not in _UNSAID)
    where = "" if offer.variable == "gpu" else f", {gpu_name(offer.gpu_model)}"
    variable = "GPU" if offer.variable == "gpu" else offer.variable
    st.page_link(
        links.COMPARE,
        label=plain_markdown(f"{variable}: {values[0]} \u2192 {', '.join(values[1:])}"),
        query_params={"a": offer.a.run_id, "b": ",".join(run.run_id for run in offer.b)},
    )
    st.caption(plain_markdown(f"{offer.workload}{where}; {shown}".rstrip("; ")))


_UNSAID = (None, "", "custom", "none")
