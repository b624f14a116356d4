"""The same job over time: which job, its lines, and what changed where they moved."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from analysis.colours import BAD, GOOD, gpu_colour
from analysis.history.check import amount, seen_text
from analysis.history.line import MIN_RUNS, Change, History, Line, meaning
from analysis.runview import Job
from app.charts.trends import over_time
from app.ui import data, links, style
from app.ui.format import gpu_name, many, percent, switch, when
from app.ui.tables import show_table
from app.ui.widgets import chart, linked_select, plain_markdown
from core.plain_text import some_of

MAX_CHANGES = 12
MAX_TOLD = 8


def inputs() -> Job | None:
    """Draw the filter and the choice of a job; both are in the address. None without any job.

    The job whose latency was measured most often is first.
    """
    bar = st.columns([2, 4], vertical_alignment="bottom")
    query = bar[0].text_input(
        "Jobs",
        key="filter",
        bind="query-params",
        placeholder="all, or workload:decode gpu:H100",
    )
    jobs = sorted(data.list_jobs(query or ""), key=lambda job: (-job.num_timed, -job.num_runs))
    known = {f"{job.key} {job.gpu_model}".strip(): job for job in jobs}
    if not known:
        return None
    chosen = linked_select(
        bar[1],
        "Job",
        list(known),
        param="job",
        format_func=lambda key: title_of(known[key]) if key in known else "choose a job",
    )
    return known.get(chosen) or next(iter(known.values()))


def title_of(job: Job) -> str:
    """Return a job's name as it is chosen: what, where, how often."""
    where = f", {gpu_name(job.gpu_model)}" if job.gpu_model else ""
    return f"{job.name}{where} ({many(job.num_runs, 'run')})"


def nothing() -> None:
    """Say what makes a history."""
    style.empty_state(
        "No job has been measured twice yet",
        "Run a job again, on another day, commit or version: runs of the same "
        "workload with the same parameters on the same GPU model form one line "
        "here.",
    )
    st.page_link(links.RUNS, label="Runs", icon=":material/table_rows:")


def head(history: History) -> None:
    """Draw what the job is and how far its runs lie apart."""
    job = history.job
    shown = [
        f"{k} {switch(str(v))}" for k, v in job.params.items() if v not in (None, "", "custom")
    ]
    first = next((line.points for line in history.lines), ())
    span = f"{when(first[0].at)} to {when(first[-1].at)}" if first else ""
    style.header(
        job.workload or job.name,
        [gpu_name(job.gpu_model) if job.gpu_model else "device not known", *shown[:8]],
        f"{many(job.num_runs, 'run')} \u00b7 {span}" if span else "",
    )
    if job.num_runs < MIN_RUNS:
        st.caption(
            f"Detecting a change needs at least {MIN_RUNS} runs; this job has {job.num_runs}."
        )


def lines(history: History) -> None:
    """Draw one chart per metric."""
    colour = gpu_colour(history.job.gpu_model)
    grid = st.grid(2 if len(history.lines) > 1 else 1, min_column_width=420, gap="medium")
    for line in history.lines:
        with grid.cell(), st.container(gap="xxsmall"):
            st.markdown(f"**{line.trend.label}**", help=plain_markdown(meaning(line)))
            spread = percent(line.spread_frac) if not line.trend.is_exact else ""
            st.caption(
                plain_markdown(
                    f"{amount(line, line.level)} now"
                    + (f"; runs spread by {spread} around their level" if spread else "")
                    + (f"; {seen_text(line)}" if seen_text(line) else "")
                )
            )
            chart(
                over_time(line, colour),
                alt=f"{line.trend.label} of {many(len(line.points), 'run')} over time, "
                f"{many(len(line.changes), 'change')}",
            )


def changes(history: History) -> None:
    """Draw each change with what differs there, and the way to its comparison."""
    st.subheader("What changed", anchor=False)
    places: dict[tuple[str, str], list[tuple[Line, Change]]] = {}
    for line, change in history.changes:
        places.setdefault((change.before[-1], change.after[0]), []).append((line, change))
    if not places:
        if max((len(line.points) for line in history.lines), default=0) < MIN_RUNS:
            st.caption(f"Not known: a change needs {MIN_RUNS} runs.")
        else:
            st.caption("No change: every line is level within its noise.")
        return
    for number, moved in enumerate(list(places.values())[:MAX_CHANGES]):
        with st.container(border=True, gap="xxsmall"):
            _place(moved, number)
    if (more := len(places) - MAX_CHANGES) > 0:
        st.caption(f"{many(more, 'older change')}: `warpboard trend` lists all of them.")


def _place(moved: Sequence[tuple[Line, Change]], number: int) -> None:
    """Draw what changed between two runs, how they differ, and links onward."""
    line, change = moved[0]
    first, last = line.points[change.index], line.points[change.index - 1]
    texts = [_moved(*change_of_line) for change_of_line in moved]
    st.html(f'{" ".join(texts)} <span class="wb-muted">{when(first.at)}</span>')
    differs = data.fetch_differences(change)
    differences = [d.change.replace(" -> ", " \u2192 ") for d in differs]
    recorded = some_of(differences, MAX_TOLD, "; ") or "no recorded field differs"
    st.caption(plain_markdown(f"From {last.name} to {first.name}: {recorded}."))
    bar = st.container(horizontal=True)
    if bar.button("Compare both sides", key=f"compare_{number}", icon=":material/compare_arrows:"):
        links.open_compare(change.before, change.after)
    if bar.button(
        "First run after the change", key=f"after_{number}", icon=":material/query_stats:"
    ):
        links.open_run(change.after[0])


def _moved(line: Line, change: Change) -> str:
    word, colour = ("worse", BAD) if change.is_worse else ("better", GOOD)
    dot = f'<span class="wb-dot" style="background:{colour}"></span>'
    return f"{dot}<b>{line.trend.label} {change.percent:+.1f} %, {word}</b> "


def runs(history: History) -> None:
    """List the runs with their numbers, the newest first; a chosen one opens."""
    rows: dict[str, dict[str, object]] = {}
    for line in history.lines:
        unit = f" {line.trend.unit}" if line.trend.unit else ""
        for point in line.points:
            row = rows.setdefault(point.run_id, {"run": point.name, "when": when(point.at)})
            row[f"{line.trend.label.lower()}{unit}"] = point.value
            row["tags"] = ", ".join(point.tags)
    with st.expander(f"{many(len(rows), 'run')} of this job", icon=":material/table_rows:"):
        ids = list(rows)[::-1]
        event = show_table(
            pd.DataFrame([rows[run_id] for run_id in ids]),
            on_select="rerun",
            selection_mode="single-row",
            key=f"trend_runs_{history.job.key}",
            most_px=480,
            alt="Runs of this job with their numbers",
        )
        if event.selection.rows:
            links.open_run(ids[event.selection.rows[0]])


def check_command(history: History) -> None:
    """Show the nightly check of this job."""
    newest = history.lines[0].points[-1].run_id if history.lines else history.job.name
    st.caption("As a nightly check, with an exit code and a report for a pull request:")
    st.code(
        f"./warpboard trend {newest} --metric all --fail-above 5 --markdown report.md",
        language="sh",
        wrap_lines=True,
    )


def address_of(job: Job) -> dict[str, str]:
    """Return the query of the page that shows a job."""
    return {"job": f"{job.key} {job.gpu_model}".strip()}
