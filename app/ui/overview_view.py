"""The Overview: state of the dashboard, and three questions to start from.

What got slower, what would be faster, which of two is faster.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from analysis.colours import gpu_colour
from analysis.compare.offered import Offer
from analysis.history.check import DEFAULT_NEW
from analysis.history.line import MIN_RUNS
from app.submit import CPU
from app.ui import cached, data, links, style, trends_view
from app.ui.format import count, gpu_name, many, noise_floor, switch
from app.ui.queue_view import progress_of
from app.ui.run.advice import prediction_text
from app.ui.runs_table import open_table, rows_key
from app.ui.tables import show_table
from app.ui.widgets import card_border, plain_markdown, run_line, said_plainly
from core.plain_text import escape
from db import status


def first_steps() -> None:
    """Say what an empty dashboard can do first."""
    style.empty_state(
        "Nothing here yet",
        "Look at runs measured on an H100 and an H200 first, or run something on this machine: "
        "a CPU is enough.",
    )
    bar = st.container(horizontal=True)
    if bar.button("Load the example data", type="primary", icon=":material/dataset:"):
        with said_plainly(), st.spinner("Reading the example captures"):
            data.load_demo()
        st.rerun()
    if bar.button("Submit a first run", icon=":material/add_circle:"):
        st.switch_page(links.SUBMIT, query_params={"workload": "decode"})
    if bar.button("Import my captures", icon=":material/upload_file:"):
        st.switch_page(links.IMPORT)


def summary(num_runs: int, gpus: pd.DataFrame, queue: pd.DataFrame) -> None:
    """Say in one line what is here and what is running."""
    at_work = int((queue["status"] != "queued").sum()) if len(queue) else 0
    style.line(
        [
            f"{count(at_work)} running, {count(len(queue) - at_work)} waiting"
            if len(queue)
            else "Nothing is running or waiting",
            _served(gpus),
            many(num_runs, "run"),
        ]
    )


def _served(gpus: pd.DataFrame) -> str:
    """Say which GPUs can take a job; those known from files alone are none of them."""
    if gpus.empty or not gpus["worker_id"].notna().any():
        return "no worker has registered"
    served = gpus[gpus["worker_id"].notna()]
    cards = served[served["model"] != CPU]
    if len(cards):
        return f"{count(int(cards['is_online'].sum()))} of {many(len(cards), 'GPU')} online"
    return f"CPU worker {'online' if served['is_online'].any() else 'offline'}"


def gpus(frame: pd.DataFrame) -> None:
    """Draw a tile for each model of GPU: those online first, then those with most runs."""
    if frame.empty:
        return
    st.subheader("GPUs", anchor=False)
    models = [group.to_dict("records") for _, group in frame.groupby("model", sort=False)]
    models.sort(key=lambda rows: (not any(r["is_online"] for r in rows), -rows[0]["num_runs"]))
    with st.grid("auto", min_column_width=250, border=True, gap="small"):
        for rows in models[:MAX_MODELS]:
            with card_border(str(rows[0]["model"])):
                st.html(_model_tile(rows))


MAX_MODELS = 8


def model_lines(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return, for the GPUs of one model, how many are there and what is known of them.

    Those of workers count where there are any: captures may name cards of anywhere.
    """
    served = [row for row in rows if row["worker_id"]]
    online = sum(bool(row["is_online"]) for row in served)
    state = "from files" if not served else "online" if online else "offline"
    if len(served) > 1:
        state = f"{online} of {len(served)} online"
    shown = served or list(rows)
    if len(shown) == 1:
        return state, _what_is_known(shown[0])
    where = ", ".join(dict.fromkeys(str(row["host"]) for row in served if row["host"]))
    measured = sum(bool(row["peaks"]) for row in shown)
    lead = where or f"{len(shown)} cards in captures"
    return state, f"{lead} \u00b7 peaks measured on {measured or 'none'}"


def _what_is_known(row: Mapping[str, Any]) -> str:
    floors = (row["info"] or {}).get("noise_floors") or {}
    peaks = "peaks measured" if row["peaks"] else "peaks not measured"
    return f"{peaks} \u00b7 {noise_floor(row['noise_floor_frac'], floors)}"


def _model_tile(rows: Sequence[Mapping[str, Any]]) -> str:
    state, known = model_lines(rows)
    model, is_online = rows[0]["model"], any(row["is_online"] for row in rows)
    dot = "#009e73" if is_online else "#8a94a6"
    return (
        f'<div style="font-weight:650"><span class="wb-dot" style="border-radius:.15rem;background:'
        f'{gpu_colour(model)}"></span>{escape(gpu_name(model))}</div>'
        f'<div class="wb-muted" style="font-size:.86rem;line-height:1.6"><span class="wb-dot" '
        f'style="background:{dot}"></span>{state} \u00b7 {many(rows[0]["num_runs"], "run")}<br>'
        f"{escape(known)}</div>"
    )


def running(queue: pd.DataFrame) -> None:
    """Draw running jobs, polling only while there are some."""
    if queue.empty:
        return
    st.subheader("Running and waiting", anchor=False)
    _running_part()


@st.fragment(run_every="2s")
def _running_part() -> None:
    frame = cached.read(status.queue)
    if frame.empty:
        st.rerun()
    active = frame[frame["status"] != "queued"]
    for row in active.head(6).to_dict("records"):
        line = run_line(row)
        frac, text = progress_of(row["progress"], row["status"])
        line.progress(frac, text=plain_markdown(text))
    waiting = len(frame) - len(active)
    if waiting:
        stuck = frame[(frame["status"] == "queued") & ~frame["has_worker"]]
        note = f"; {len(stuck)} of them for a GPU without a worker" if len(stuck) else ""
        st.page_link(links.QUEUE, label=f"{waiting} waiting{note}", icon=":material/schedule:")


def against_baselines() -> None:
    """Draw the newest run of each pinned measurement against its baseline."""
    pairs = data.newest_against_baselines()
    if pairs.empty:
        return
    st.subheader("Against the pinned baselines", anchor=False)
    rows = [_change(str(p.baseline_id), str(p.run_id)) for p in pairs.head(12).itertuples()]
    event = show_table(
        pd.DataFrame([r for r in rows if r]),
        on_select="rerun",
        selection_mode="single-row",
        key=f"baselines_{rows_key([*pairs['baseline_id'], *pairs['run_id']])}",
        alt="Newest runs against their baselines",
    )
    if event.selection.rows:
        pair = pairs.iloc[event.selection.rows[0]]
        links.open_compare([str(pair["baseline_id"])], [str(pair["run_id"])])
    st.caption("Choose a row to see the comparison.")


def _change(baseline_id: str, run_id: str) -> dict[str, str]:
    comparison = data.fetch_comparison((baseline_id,), (run_id,), "latency")
    change = f"{100 * (comparison.ratio - 1):+.1f} %" if comparison.ratio else "\u2014"
    return {
        "run": comparison.b.label,
        "baseline": comparison.a.label,
        "latency": comparison.verdict.replace("_", " "),
        "change": change,
        "why": comparison.reason,
    }


def newest(frame: pd.DataFrame, total: int) -> None:
    """Draw the newest runs."""
    st.subheader("Newest runs", anchor=False)
    open_table(frame, key="newest")
    st.page_link(links.RUNS, label=f"All {count(total)} runs", icon=":material/table_rows:")


def disk() -> None:
    """Say when the disk is nearly full, and what that means."""
    if note := data.disk_note():
        st.warning(note, icon=":material/hard_drive:")


def worker_environment() -> None:
    """Show the progress of making the worker's environment."""
    if data.worker_note():
        _environment_part()


@st.fragment(run_every="2s")
def _environment_part() -> None:
    note = data.worker_note()
    if not note:
        st.rerun()
    if note.startswith("failed"):
        st.error(plain_markdown(f"The worker cannot start. {note}"), icon=":material/error:")
    else:
        st.info(
            plain_markdown(f"Preparing the worker: {note}. Jobs wait until it is ready."),
            icon=":material/downloading:",
        )


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
    grid = st.grid(3, min_column_width=330, border=True, gap="small")
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
    "Did anything change?": f"No: the newest runs of every job with {MIN_RUNS} runs or more are "
    "at their level.",
    "What would make it faster?": "No experiment is predicted to improve the "
    "newest runs on a GPU enough to try it.",
    "Which is faster?": "No two runs differ in exactly one field yet.",
}


def _changes() -> bool:
    """Draw the largest changes of the newest runs; False where it is known that none changed."""
    if not data.list_jobs(min_runs=MIN_RUNS):
        st.caption(f"Not known: no job has the {MIN_RUNS} runs that a change needs.")
        return True
    changes = data.new_changes(DEFAULT_NEW)
    for past, line, change in changes[:MAX_ROWS]:
        word = "worse" if change.is_worse else "better"
        st.page_link(
            links.TRENDS,
            label=plain_markdown(
                f"{line.trend.label} {change.percent:+.1f} %, {word}: {past.job.name}"
            ),
            query_params=trends_view.address_of(past.job),
        )
    if (more := len(changes) - MAX_ROWS) > 0:
        st.page_link(links.TRENDS, label=many(more, "more change"))
    return bool(changes)


def _experiments() -> bool:
    """Draw the experiments that are predicted to gain most; False where there is none."""
    newest, _ = data.list_runs("status:done -gpu:cpu latency>0", limit=ADVISED_RUNS)
    experiments: list[tuple[str, str, Mapping[str, Any]]] = [
        (str(advice["run_id"]), str(advice["name"]), e)
        for advice in data.fetch_advice_lately(tuple(map(str, newest["id"])))
        for e in advice["experiments"]
        if e["is_worth_a_run"] and e["status"] != "withheld" and not e["tried"]
        and not e.get("measured")
    ]  # fmt: skip
    experiments.sort(key=lambda entry: -entry[2]["gain_frac"])
    for run_id, name, experiment in experiments[:MAX_ROWS]:
        st.page_link(
            links.RUN,
            label=plain_markdown(f"{experiment['title']}: {name}"),
            query_params={"run_id": run_id, "tab": "Advice"},
        )
        st.caption(plain_markdown(prediction_text(dict(experiment))))
    return bool(experiments)


def _comparisons() -> bool:
    """Draw comparisons that someone began, then those that the runs offer; False without any."""
    begun = data.begun_comparisons()[:2]
    for two in begun:
        waiting = f", {two.num_waiting} waiting" if two.num_waiting else ""
        st.page_link(
            links.COMPARE,
            label=plain_markdown(
                f"{two.name or 'two jobs in turn'}: {len(two.a)} and {len(two.b)} runs{waiting}"
            ),
            query_params={"a": ",".join(two.a), "b": ",".join(two.b)},
        )
    offered = data.offered_comparisons(MAX_ROWS)[: MAX_ROWS - len(begun)]
    for offer in offered:
        link_of(offer)
    if offered:
        st.page_link(links.COMPARE, label="More pairs that differ in one field")
    return bool(begun or offered)


def link_of(offer: Offer) -> None:
    """Draw the way to an offered comparison."""
    values = [_value_text(offer.variable, value) for value in offer.values]
    shown = " ".join(f"{k} {offer.same[k]}" for k in _SHOWN if offer.same.get(k) not in _UNSAID)
    where = "" if offer.variable == "gpu" else f", {gpu_name(offer.a.gpu_model)}"
    variable = "GPU" if offer.variable == "gpu" else offer.variable
    st.page_link(
        links.COMPARE,
        label=plain_markdown(f"{variable}: {values[0]} \u2192 {', '.join(values[1:])}"),
        query_params={"a": offer.a.id, "b": ",".join(run.id for run in offer.b)},
    )
    st.caption(plain_markdown(f"{offer.a.workload}{where}; {shown}".rstrip("; ")))


def _value_text(variable: str, value: str) -> str:
    if variable == "gpu":
        return gpu_name(value)
    # The sides of a tile have no need of their names: 128 x 64.
    return (
        " x ".join(re.findall(r" (\d+)", value)) or value if variable == "tile" else switch(value)
    )


_UNSAID = (None, "", "custom", "none")
