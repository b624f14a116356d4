"""The top of a run's page: what it is, what limits it, the headline numbers, the clocks."""

from collections.abc import Sequence
from statistics import median

import pandas as pd
import streamlit as st

from analysis.colours import BAD, GOOD, IDLE, IDLE_COLOURS, NEUTRAL, RUN_B, category_colour
from analysis.pass_clocks import PassClocks, Reading, pass_clocks
from analysis.runview import RunRow, RunView
from analysis.verdict import is_cpu_run
from app.ui import cached, data, links, style
from app.ui.format import UNKNOWN, gpu_name, percent, when, with_micro
from app.ui.queue_view import cancel, progress_of, retry, show_log
from app.ui.run.cards import run_cards
from app.ui.shape import device_text
from app.ui.tables import show_table
from app.ui.widgets import (
    Card,
    cards,
    markdown_with_code,
    plain_markdown,
    said_plainly,
    share,
    status_badge,
)
from core.errors import AppError
from core.states import FINAL, Pass
from db import fetch, runs, status

_SHOWN = ("dtype", "mode", "compile", "batch", "context", "sequence", "seq_len", "layers", "preset")


def is_active(run: RunRow) -> bool:
    """Say whether the run is still waiting or at work."""
    return run.status not in FINAL


def title(view: RunView) -> None:
    """Draw name, facts and what can be done."""
    run = view.run
    facts = [device_text(view)]
    # A program of the user's own has no sizes that a preset could name.
    names = () if run.workload == "command" else _SHOWN
    shown = {k: run.params.get(k) for k in names}
    facts += [f"{k} {v}" for k, v in shown.items() if v not in (None, "", "custom")]
    facts += ["example data"] if run.source == "demo" else []
    facts += ["baseline"] if run.is_baseline else []
    facts += [f"#{t}" for t in run.tags]
    env = run.environment
    tail = [f"{k} {env[k]}" for k in ("driver", "torch", "cuda", "triton") if env.get(k)]
    tail.append(when(run.finished_at or run.created_at))
    left, right = st.columns([11, 9], vertical_alignment="top")
    with left:
        style.header(run.name)
    bar = right.container(key="run_actions", horizontal=True, horizontal_alignment="right")
    with bar:
        status_badge(run.status)
    with bar.popover("Compare with", icon=":material/compare_arrows:"):
        _compare_with(run)
    if run.workload and bar.button("Run again with a change", icon=":material/tune:"):
        st.switch_page(links.SUBMIT, query_params={"from": run.id})
    share(bar, "run", run_id=run.id)
    style.facts_line(facts, " \u00b7 ".join(tail))


def _compare_with(run: RunRow) -> None:
    query = f'workload:"{run.workload}"' if run.workload else ""
    others, _ = data.list_runs(f"{query} status:done,oom".strip(), limit=60)
    others = others[others["id"] != run.id]
    if others.empty:
        st.caption("There is no other finished run yet.")
        return
    names = dict(zip(others["id"], others["name"], strict=True))
    other = st.selectbox(
        "Against", list(names), format_func=lambda i: f"{names[i]}  ({i})", key="compare_with"
    )
    if st.button("Compare", type="primary", key="compare_go"):
        links.open_compare([run.id], [str(other)])


@st.fragment(run_every="2s")
def live(run_id: str) -> None:
    """Draw progress and log until the run ends, then load the page with its results."""
    run = cached.read(fetch.run_row, run_id)
    if run.status in FINAL:
        st.rerun()
    if run.status == "queued":
        device = plain_markdown(gpu_name(run.gpu_model)) if run.gpu_model else "this GPU"
        st.markdown(f"Waiting for a worker that serves {device}.")
        st.page_link(links.QUEUE, label="Its place in the queue", icon=":material/pending_actions:")
    else:
        frac, text = progress_of(dict(run.progress), run.status)
        st.progress(frac, text=plain_markdown(text))
    if st.button("Cancel", icon=":material/cancel:"):
        with said_plainly():
            cancel(run_id)
        st.rerun(scope="fragment")
    show_log(cached.read(status.last_events, run_id))


def answer(view: RunView) -> None:
    """Draw what limits the run with its evidence, and the bar of where the time went."""
    run = view.run
    if run.error and run.status != "oom":
        st.error(markdown_with_code(run.error), icon=":material/error:")
    if run.status in ("done", "oom"):
        verdict = data.fetch_verdict(run.id)
        next_steps = [f"Next: {step}" for step in verdict.next_steps[:3]]
        style.verdict(
            verdict.headline,
            [],
            list(verdict.evidence),
            _ACCENTS.get(str(verdict.kind), NEUTRAL),
            composition(
                verdict.bar,
                view.summary.get("unclassified_frac"),
                "operator" if is_cpu_run(view) else "kernel",
            ),
            after=next_steps,
        )
        return
    if run.workload and st.button("Retry", icon=":material/replay:"):
        retry(run.id)
    log = cached.read(status.last_events, run.id)
    if len(log):
        with st.expander("Log", icon=":material/terminal:", expanded=run.status == "failed"):
            show_log(log)


_ACCENTS = {
    "launch_bound": BAD,
    "host_bound": BAD,
    "sync_bound": BAD,
    "straggler": BAD,
    "communication_bound": BAD,
    "transfer_bound": BAD,
    "oom": BAD,
    "memory_bound": RUN_B,
    "compute_bound": GOOD,
}


def composition(
    bar: Sequence[tuple[str, int]], unknown_frac: float | None, what: str = "kernel"
) -> str:
    """Return the bar of classes (of each `what`) and idle causes, as HTML; empty where unknown."""
    whole = sum(ns for _, ns in bar)
    if whole <= 0:
        return ""
    kernel_ns = sum(ns for name, ns in bar if not name.startswith("idle")) or 1
    parts = []
    classes, causes = [(f"of {what} time:", "", "")], [("of the whole:", "", "")]
    for name, ns in bar:
        is_idle = name.startswith("idle")
        colour = IDLE_COLOURS.get(name.removeprefix("idle: "), IDLE) if is_idle else ""
        colour = colour or category_colour(name)
        share = percent(ns / (whole if is_idle else kernel_ns))
        parts.append((f"{name} {share}", ns / whole, colour))
        if ns / whole >= 0.004 or ns / kernel_ns >= 0.01:
            (causes if is_idle else classes).append((name, share, colour))
    classes.append(("not recognised", percent(unknown_frac), ""))
    label = "Where the time went: " + ", ".join(name for name, _, _ in parts)
    return style.stacked_bar(parts, label) + style.legends(classes, causes)


_QUIET_CODES = frozenset(
    {
        "nsys_diagnostic",
        "duplicate_capture",
        "uneven_counters",
        "ncu_partial_coverage",
        "unclosed_ranges",
        "memory_passes_differ",
        "oom",
    }
)
"""Said elsewhere on the page (memory, counters), or of no consequence for the numbers shown."""
_MOST_LOUD = 3


def _noted(view: RunView) -> tuple[list[str], list[str]]:
    warnings = list(dict.fromkeys((w.code, w.message) for w in view.warnings))
    messages = [(code, with_micro(message.replace("`", ""))) for code, message in warnings]
    loud = [message for code, message in messages if code not in _QUIET_CODES]
    quiet = [message for code, message in messages if code in _QUIET_CODES]
    return loud[:_MOST_LOUD], loud[_MOST_LOUD:] + quiet


def warnings(view: RunView) -> None:
    """Draw the warnings that affect the numbers shown; `notes` draws the rest."""
    loud, _ = _noted(view)
    if loud:
        st.warning("  \n".join(map(plain_markdown, loud)), icon=":material/info:")


def notes(view: RunView) -> None:
    """Draw the tools' routine notes about the captures, folded."""
    _, folded = _noted(view)
    if folded:
        with st.expander(
            f"Notes about the captures ({len(folded)})", icon=":material/sticky_note_2:"
        ):
            st.text("\n".join(folded))


def labels(run: RunRow) -> None:
    """Draw tags, notes, pin and delete."""
    with st.expander("Tags, notes, baseline", icon=":material/edit_note:"), st.form("labels"):
        tags = st.text_input("Tags", value=" ".join(run.tags), key=f"tags_{run.id}")
        notes = st.text_area("Notes", value=run.notes, key=f"notes_{run.id}")
        pinned = st.checkbox(
            "Baseline of its workload, parameters and GPU",
            value=run.is_baseline,
            key=f"pin_{run.id}",
        )
        if st.form_submit_button("Save", type="primary"):
            try:
                _save(run, set(tags.split()), notes, pinned)
            except AppError as exc:
                st.error(plain_markdown(str(exc)))
                return
            st.rerun()


def _save(run: RunRow, tags: set[str], notes: str, pinned: bool) -> None:
    with cached.database() as db:
        runs.set_tags(db, run.id, tags - set(run.tags), set(run.tags) - tags)
        runs.set_notes(db, run.id, notes)
        if pinned and not run.is_baseline:
            runs.pin(db, run.id)
        if run.is_baseline and not pinned:
            runs.unpin(db, run.id)


def first_tab(view: RunView) -> str:
    """Return the tab that is open first: the kernels, else what the run has instead of them."""
    if not view.kernels.empty:
        return "Kernels"
    for table, tab in (
        (view.counters, "Counters and roofline"),
        (view.memory_points, "Memory"),
        (view.samples, "Samples"),
    ):
        if not table.empty:
            return tab
    return "Kernels"


def headline(view: RunView) -> None:
    """Draw the headline numbers; unknown ones share a line with the reason."""
    every = run_cards(view)
    if known := [c for c in every if c.value != UNKNOWN]:
        cards(known)
    if unknown := [c for c in every if c.value == UNKNOWN]:
        st.caption(plain_markdown("Not known: " + _reasons(unknown)))


def _reasons(unknown: Sequence[Card]) -> str:
    """Return `Latency, MFU (no clean pass recorded); Peak memory (...)`."""
    by_note: dict[str, list[str]] = {}
    for card in unknown:
        by_note.setdefault(card.note, []).append(card.label)
    return "; ".join(f"{', '.join(labels)} ({note})" for note, labels in by_note.items())


def clocks(view: RunView) -> None:
    """Draw the GPU's clocks during the run; nothing where they were not read."""
    passes = pass_clocks(view)
    if not passes:
        return
    clean = [p for p in passes if p.pass_name == Pass.CLEAN] or list(passes)
    slowed = [p for p in clean if p.is_throttled]
    icon = ":material/thermostat:" if not slowed else ":material/speed:"
    with st.expander(plain_markdown(_line(clean, slowed)), icon=icon):
        show_table(
            pd.DataFrame([_row(p) for p in passes]),
            most_px=420,
            alt="Clocks, temperature, power and throttling of each pass",
        )
        st.caption(
            "Median, with the range of readings if they differ; read once per "
            "second, or before and after a pass shorter than 1 s."
        )


def _line(clean: list[PassClocks], slowed: list[PassClocks]) -> str:
    """Return the clean pass in one line: typical clock, warmest, most power, throttling."""
    parts = []
    if clocks_mhz := [p.sm_clock_mhz for p in clean if p.sm_clock_mhz]:
        middle = Reading(
            least=min(c.least for c in clocks_mhz),
            median=median(c.median for c in clocks_mhz),
            greatest=max(c.greatest for c in clocks_mhz),
        )
        parts.append(f"SM clock {_text(middle)} MHz")
    for name, unit in (("temperature_c", "\u00b0C"), ("power_w", "W")):
        readings = [r for p in clean if (r := getattr(p, name))]
        if readings:
            parts.append(f"up to {max(r.greatest for r in readings):.0f} {unit}")
    if slowed:
        why = ", ".join(dict.fromkeys(text for p in slowed for text in p.reason_texts))
        parts.append(f"throttled in {len(slowed)} of {len(clean)} processes ({why})")
    elif any(p.is_throttled is False for p in clean):
        parts.append("not throttled")
    return " \u00b7 ".join(parts)


def _row(clocks: PassClocks) -> dict[str, str]:
    throttled = {None: UNKNOWN, False: "no", True: "yes"}[clocks.is_throttled]
    return {
        "pass": f"{clocks.pass_name} #{clocks.process}",
        "SM clock MHz": _text(clocks.sm_clock_mhz),
        "memory clock MHz": _text(clocks.memory_clock_mhz),
        "temperature \u00b0C": _text(clocks.temperature_c),
        "power W": _text(clocks.power_w),
        "GPU use %": _text(clocks.utilization_pct),
        "throttled": throttled,
        "throttle reasons": ", ".join(clocks.reason_texts) or "none",
    }


def _text(reading: Reading | None) -> str:
    if reading is None:
        return UNKNOWN
    middle = f"{reading.median:.0f}"
    ends = (f"{reading.least:.0f}", f"{reading.greatest:.0f}")
    return middle if ends == (middle, middle) else f"{middle} ({ends[0]} to {ends[1]})"
