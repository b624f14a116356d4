"""The live part of the queue: only this is redrawn, and only while something is active."""

from textwrap import shorten
from typing import Any

import pandas as pd
import streamlit as st

from app.ui import cached, data, links, style
from app.ui.format import ago, count, gpu_name, when
from app.ui.shape import TELLING
from app.ui.widgets import markdown_with_code, plain_markdown, run_line, status_badge
from core.errors import AppError
from db import queue, status

LOG_LINES = 200
_SEEN = "queue_seen"
_STAGES = {
    "start": "starting",
    "build": "building",
    "join": "waiting for the other ranks",
    "compile": "compiling",
    "warmup": "warming up",
    "measure": "measuring",
}
_PART_OF_A_PASS = {"warmup": (0.1, 0.4), "measure": (0.4, 1.0)}
"""From where to where the bar of a pass goes in a stage; the others are its beginning."""
LOG_PX = 320
_FEW_LINES = 12


def nothing_to_do() -> None:
    """Say that the queue is empty and where work comes from."""
    style.empty_state(
        "Nothing is running or waiting", "Submit a run, or choose Run again on a run's page."
    )
    st.page_link(links.SUBMIT, label="Submit a run", icon=":material/add_circle:")


@st.fragment(run_every="2s")
def live() -> None:
    """Draw running and waiting runs by GPU; reload the page when one of them ended."""
    frame = cached.read(status.queue)
    present = set(frame["id"])
    gone = st.session_state.get(_SEEN, present) - present
    st.session_state[_SEEN] = present
    if gone or frame.empty:
        st.rerun()
    for gpu, rows in frame.groupby("gpu_model", dropna=False, sort=False):
        waiting = rows[rows["status"] == "queued"]
        name = "no GPU chosen" if pd.isna(gpu) else str(gpu)
        shown = name if pd.isna(gpu) else gpu_name(gpu)
        st.subheader(plain_markdown(shown), anchor=False)
        for text in nobody_serves(name, waiting):
            st.warning(plain_markdown(text), icon=":material/power_off:")
        for row in rows[rows["status"] != "queued"].to_dict("records"):
            _running(row)
        _waiting(waiting)


def nobody_serves(model: str, waiting: pd.DataFrame) -> list[str]:
    """Return a sentence per model or physical GPU that runs wait for and no worker has."""
    lonely = waiting[~waiting["has_worker"].astype(bool)]
    names = lonely["device_name"].dropna()
    notes = []
    if len(lonely) > len(names):
        notes.append(
            f"No worker serves {model} now: its runs wait until one starts. The "
            "GPUs page shows how to add one."
        )
    for name, number in names.value_counts(sort=False).items():
        runs_wait = "1 run waits" if number == 1 else f"{number} runs wait"
        notes.append(
            f"The worker of {name} is gone: {runs_wait} for this GPU. Start its "
            "worker, or cancel and submit for another GPU."
        )
    return notes


def _running(row: dict[str, Any]) -> None:
    with st.container(border=True):
        head = st.container(horizontal=True, vertical_alignment="center")
        with head:
            status_badge(row["status"])
        head.page_link(
            links.RUN,
            label=plain_markdown(row["name"]),
            query_params={"run_id": row["id"]},
            width="stretch",
        )
        if row["cancel_requested"]:
            head.caption("cancelling")
        elif head.button("Cancel", key=f"cancel_{row['id']}", icon=":material/cancel:"):
            _do(lambda: cancel(row["id"]))
        frac, text = progress_of(row["progress"] or {}, row["status"])
        st.progress(frac, text=plain_markdown(f"{text}, started {ago(row['started_at'])}"))
        log = cached.read(status.last_events, row["id"], LOG_LINES)
        with st.expander("Log", icon=":material/terminal:", key=f"log_{row['id']}"):
            show_log(log)


def progress_of(progress: dict[str, Any], status: str) -> tuple[float, str]:
    """Return the completed fraction of the job (0-1) and its current stage in words.

    A job has `num_steps` passes and processes; `done` of `total` is inside the present one.
    """
    if status == "ingesting":
        return 1.0, "reading the captures"
    stage = str(progress.get("stage", ""))
    words = [f"{progress['pass']} pass"] if progress.get("pass") else []
    words.append(_STAGES.get(stage, stage or status))
    inner = _frac(progress.get("done"), progress.get("total"))
    if inner is not None:
        begin, end = _PART_OF_A_PASS.get(stage, (0.0, 0.0))
        inner = begin + (end - begin) * inner
    if stage == "measure" and inner is not None:
        words[-1] += f" {count(progress['done'])} of {count(progress['total'])}"
    step, steps = progress.get("step"), progress.get("num_steps")
    if isinstance(step, int) and isinstance(steps, int) and steps > 0:
        words.append(f"step {step + 1} of {steps}")
        return min(1.0, (step + (inner or 0.0)) / steps), ", ".join(words)
    return inner or 0.0, ", ".join(words)


def _frac(done: Any, total: Any) -> float | None:
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        return min(1.0, max(0.0, done / total))
    return None


def show_log(events: pd.DataFrame) -> None:
    """Draw log events as lines; many of them scroll."""
    lines = [f"{e.at[11:19]}  {e.message}" for e in events.itertuples()]
    st.code(
        "\n".join(lines) or "no output yet",
        language=None,
        wrap_lines=True,
        height=LOG_PX if len(lines) > _FEW_LINES else "content",
    )


def _waiting(rows: pd.DataFrame) -> None:
    for place, row in enumerate(rows.to_dict("records"), start=1):
        line = st.container(horizontal=True, vertical_alignment="center", border=True)
        line.text(f"{place}.", width=28)
        line.page_link(
            links.RUN, label=plain_markdown(row["name"]), query_params={"run_id": row["id"]}
        )
        where = f"on {row['device_name']} \u00b7 " if row["device_name"] else ""
        text = where + _telling(row["params"], str(row["name"]))
        line.caption(plain_markdown(text), width="stretch")
        if place > 1 and line.button(
            "Move up", key=f"up_{row['id']}", icon=":material/vertical_align_top:"
        ):
            _do(lambda i=row["id"]: _move_up(i))
        if line.button("Cancel", key=f"cancel_{row['id']}", icon=":material/cancel:"):
            _do(lambda i=row["id"]: cancel(i))


def _telling(params: dict[str, Any], name: str) -> str:
    """Return the parameters that tell jobs apart, without those that the name says."""
    shown = [f"{k}={params[k]}" for k in TELLING if k in params]
    return ", ".join(text for text in shown if text not in name)


def cancel(run_id: str) -> None:
    """Ask for a run to be cancelled; UserError when it has ended."""
    with cached.database() as db:
        queue.request_cancel(db, run_id)


def _move_up(run_id: str) -> None:
    with cached.database() as db:
        queue.move_up(db, run_id)


def _do(action: Any) -> None:
    try:
        action()
    except AppError as exc:
        st.toast(plain_markdown(str(exc)), icon=":material/error:")
        return
    st.rerun(scope="fragment")


def ended() -> None:
    """List what ended last, with Retry where it did not succeed."""
    frame, _ = data.list_runs(
        "source:submitted status:done,oom,failed,cancelled,interrupted",
        sort="created_at",
        limit=12,
    )
    if frame.empty:
        return
    st.subheader("Ended last", anchor=False)
    for row in frame.to_dict("records"):
        with st.container(gap="xxsmall"):
            _ended(row)


def _ended(row: dict[str, Any]) -> None:
    line = run_line(row)
    at = when(row["finished_at"] or row["created_at"])
    line.caption(plain_markdown(f"{gpu_name(row['gpu_model'])} \u00b7 {at}"), width="stretch")
    if row["status"] in ("failed", "cancelled", "interrupted", "oom") and line.button(
        "Retry", key=f"retry_{row['id']}", icon=":material/replay:"
    ):
        retry(row["id"])
    if row["error"]:
        error = shorten(str(row["error"]), 200, placeholder=" \u2026")
        st.caption(markdown_with_code(error))


def retry(run_id: str) -> None:
    """Queue an ended run again and reload the page."""
    from app.submit import retry_run

    try:
        with cached.database() as db:
            retry_run(db, data.paths(), run_id)
    except AppError as exc:
        st.toast(plain_markdown(str(exc)), icon=":material/error:")
        return
    st.rerun()
