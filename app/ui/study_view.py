"""All studies at a glance; one of them with charts, tables, and jobs that fill the gaps."""

import base64
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import streamlit as st

from analysis.studies import Pivot, Study, StudyTable, Table, list_studies
from analysis.studies.engine.cells import MEASURED
from analysis.studies.engine.drawn import field_title, value_text
from analysis.studies.engine.fits import TAIL_POINTS
from analysis.studies.engine.records import FitRow
from app.charts import studies as charts
from app.job_text import submit_command
from app.pictures import Thumbnail
from app.ui import data, links, study_data, style
from app.ui.format import UNKNOWN, gpu_name, many, significant
from app.ui.tables import Head, printed_table
from app.ui.widgets import (
    chart,
    export_buttons,
    linked_select,
    plain_markdown,
    said_plainly,
    share,
)
from core.errors import UserError
from core.spec import JobSpec
from workloads.registry import parse_params

PICTURE_PX = 84
BUDGET_S = 0.6
"""Time for pictures in one go: the page is there at once, the others come one after another."""


def gallery() -> None:
    """Draw a card per study, ours first."""
    studies = sorted(list_studies(), key=place_of)
    _cards([s for s in studies if not s.is_publication], key="ours")
    st.subheader("As published", anchor=False)
    _cards([s for s in studies if s.is_publication], key="published")


def _cards(studies: Sequence[Study], *, key: str) -> None:
    """Draw the cards at once; while pictures are missing, again every second with more of them."""
    is_first = True

    def draw() -> None:
        nonlocal is_first
        _grid(studies, budget_s=0 if is_first else BUDGET_S)
        is_first = False

    waits = bool(study_data.old_thumbnails(study.name for study in studies))
    st.fragment(draw, run_every="1s" if waits else None)()


def _grid(studies: Sequence[Study], *, budget_s: float) -> None:
    end_s = time.monotonic() + budget_s
    grid = st.grid("auto", min_column_width=260, border=True, gap="small")
    old = study_data.old_thumbnails(study.name for study in studies)
    pictures = study_data.kept_thumbnails()
    for study in studies:
        if study.name in old and time.monotonic() < end_s:
            pictures[study.name] = study_data.fetch_thumbnail(study.name)
        with grid.cell(), st.container(gap="xxsmall"):
            _card(study, pictures.get(study.name))
    if old and not study_data.old_thumbnails(old):
        st.rerun()


def _card(study: Study, thumbnail: Thumbnail | None) -> None:
    st.html(
        f'<div style="height:{PICTURE_PX}px">{_picture(thumbnail.svg) if thumbnail else ""}</div>'
    )
    st.page_link(
        links.STUDIES, label=plain_markdown(study.title), query_params={"name": study.name}
    )
    fed = "\u2026" if thumbnail is None else _fed(study, thumbnail.num_runs)
    st.caption(plain_markdown(f"{study.question} {fed}"))


def _picture(svg: str) -> str:
    """Return a picture as HTML; the page takes no SVG as it is."""
    if not svg:
        return ""
    text = base64.b64encode(svg.encode()).decode()
    return (
        f'<img alt="" src="data:image/svg+xml;base64,{text}"'
        f' style="width:100%;height:{PICTURE_PX}px;display:block">'
    )


def _fed(study: Study, num_runs: int) -> str:
    if num_runs:
        return f"From {many(num_runs, 'run')}." if num_runs > 1 else "From one run."
    has_figures = any(table.sources for table in study.tables)
    return "Published figures only." if has_figures else "No run yet."


FIRST_STUDY = "decode-latency"
EVERY = "every"
_SHORT = re.compile(r"[\w.+-]{1,24}")
"A value that a sentence can say; a program's arguments are none."
MOST_PANELS = 4
"Charts of a table that are shown at once; the others come with a press."
MOST_ROWS = 60
"Rows of a table that are shown at once; the others come with a press."


def inputs() -> tuple[str, str, bool, bool]:
    """Draw the choice of study, the filter, and whether to show published figures and all runs.

    A study opens with one grid of runs; with a filter of the reader's own it shows what fits.
    """
    known = {s.name: s for s in sorted(list_studies(), key=place_of)}
    st.page_link(links.STUDIES, label="All studies", icon=":material/grid_view:")
    bar = st.columns([3, 3, 2], vertical_alignment="bottom")
    name = linked_select(
        bar[0],
        "Study",
        list(known),
        param="name",
        format_func=lambda n: known[n].title + (" (published)" if known[n].is_publication else ""),
    )
    query = bar[1].text_input(
        "Runs to include",
        key="filter",
        bind="query-params",
        placeholder="every suitable run, or gpu:H100 tag:paper",
    )
    has_figures = any(table.sources for table in known[name].tables)
    published = bar[2].toggle(
        "Published figures beside",
        value=True,
        key="published",
        bind="query-params",
        disabled=not has_figures or known[name].is_publication,
        help="Figures published by others, as printed there and always marked as published",
    )
    every = bool(st.session_state.get(EVERY)) or EVERY in st.query_params
    return (
        name,
        query or "",
        has_figures and (bool(published) or known[name].is_publication),
        bool(query) or every or known[name].is_publication,
    )


def grid_of(opened: study_data.OpenedStudy, query: str) -> None:
    """Say which runs of how many are shown, with a switch to all of them."""
    is_cut = opened.num_shown < opened.num_runs
    if query or not (is_cut or st.session_state.get(EVERY) or EVERY in st.query_params):
        return
    line = st.container(horizontal=True, vertical_alignment="center")
    fixed = ", ".join(
        f"{name.replace('_', ' ')} {' or '.join(dict.fromkeys(values))}"
        for name, values in opened.fixed.items()
        if all(map(_SHORT.fullmatch, values))
    )
    which = f"{opened.num_shown} of {many(opened.num_runs, 'run')}"
    line.caption(
        plain_markdown(
            f"{which}, one grid: {fixed}." if is_cut else f"All {many(opened.num_runs, 'run')}."
        )
    )
    line.toggle("Every run", key=EVERY, bind="query-params")


def place_of(study: Any) -> tuple[bool, bool, str]:
    """Order studies: the one most people come for first, publications last."""
    return (study.is_publication, study.name != FIRST_STUDY, study.title)


def head(result: StudyTable, query: str) -> None:
    """Draw what the study asks, the export, and the jobs that would fill the missing cells."""
    st.caption(plain_markdown(result.study.about))
    jobs = fillable(result.jobs)
    bar = st.container(horizontal=True)
    if jobs and bar.button(
        f"Run {len(jobs)} missing job{'s' if len(jobs) != 1 else ''}",
        icon=":material/play_arrow:",
        help="On the GPUs in the table that a worker serves",
    ):
        with said_plainly():
            data.submit(jobs, name=result.study.name)
        st.switch_page(links.QUEUE)
    with bar.popover("Export", icon=":material/download:"):
        export_buttons(result, result.study.name)
    share(bar, "studies", name=result.study.name, filter=query)
    has_ours = (result.frame["provenance"] == "measured") & result.frame["value"].notna()
    if not has_ours.any():
        style.empty_state(
            "No run of yours fills this study yet",
            "Run the job below, import captures of such a job, or add published figures.",
        )
        if result.jobs:
            st.code(submit_command(result.jobs[0]), language="sh", wrap_lines=True)


def fillable(jobs: tuple[Mapping[str, Any], ...]) -> list[JobSpec]:
    """Return the jobs that workers here can run; those of a GPU without a worker are left out."""
    from app.ui.submit.form import gpu_options

    served = gpu_options()
    specs = []
    for job in jobs:
        gpu = str(job.get("gpu") or served[0])
        if gpu not in served:
            continue
        try:
            params = parse_params(
                str(job["workload"]), dict(job.get("params") or {}), gpu_is_cpu=gpu == "cpu"
            )
        except UserError:
            continue
        specs.append(
            JobSpec(
                workload=str(job["workload"]),
                params=params,
                profilers=tuple(job.get("profilers") or ()) if gpu != "cpu" else ("trace",),
                repeats=int(job.get("repeats") or 1),
                gpu=gpu,
            )
        )
    return specs


def draw_table(result: StudyTable, table: Table, pivot: Pivot) -> None:
    """Draw one table of the study: its chart where it has one, then its cells."""
    if not pivot.rows:
        return
    st.subheader(plain_markdown(table.title), anchor=False)
    _draw_panels(charts.draw(result.frame, table, pivot), table)
    for part in printed_parts(pivot, table):
        _draw_part(part, table)


def _draw_panels(panels: Sequence[charts.Panel], table: Table) -> None:
    """Draw a table's charts; of many, the first ones at once."""
    if not panels or table.chart is None:
        return
    caption = f"{table.title}, as {table.chart.kind}"
    if len(panels) == 1:
        chart(panels[0].chart, alt=caption)
        return
    shown = len(panels)
    if shown > MOST_PANELS and not st.toggle(f"All {shown} charts", key=f"all of {table.title}"):
        shown = MOST_PANELS
    grid = st.grid(2, min_column_width=420, gap="medium")
    for panel in panels[:shown]:
        with grid.cell():
            st.markdown(f"**{plain_markdown(panel.title)}**")
            chart(panel.chart, alt=f"{caption}: {panel.title}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One number of a table, laid out: what is printed together."""

    name: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]
    theirs: tuple[int, ...]
    "Places of the rows that are published figures."


def _draw_part(part: Part, table: Table) -> None:
    shown = len(part.rows)
    key = f"all rows {table.title} {part.name}"
    if shown > MOST_ROWS and not st.toggle(f"All {shown} rows", key=key):
        shown = MOST_ROWS
    label = f"Table: {table.title}" + (f", {part.name}" if part.name else "")
    printed_table(part.heads, part.rows[:shown], label=label, muted=part.theirs)


def printed_parts(pivot: Pivot, layout: Table) -> list[Part]:
    """Return a table for each number that is laid out by a field, else one of all numbers.

    Rows and columns without any cell are left out. Where all rows are our own nothing says so.
    """
    texts = [name.rpartition(" / ") for name in pivot.columns]
    if not layout.columns or not pivot.columns:
        places = tuple(range(len(pivot.columns)))
        heads = [Head(text=name) for name in pivot.columns]
        return [_part("", pivot, places, heads)]
    fields = " / ".join(field_title(name) for name in layout.columns)
    parts = []
    for value in layout.values:
        measured = value_text(layout, value.key)
        places = tuple(
            i
            for i, (_, _, name) in enumerate(texts)
            if name == measured and any(row[i].text for row in pivot.cells)
        )
        if places:
            subs = tuple(texts[i][0] or "not stated" for i in places)
            parts.append(
                _part(measured, pivot, places, [Head(text=f"{measured} by {fields}", subs=subs)])
            )
    return parts


def _part(name: str, pivot: Pivot, places: Sequence[int], heads: Sequence[Head]) -> Part:
    """Return the columns at `places` after the fields, of rows that have a cell there."""
    kept = [i for i, cells in enumerate(pivot.cells) if any(cells[p].text for p in places)]
    fields = [i for i, field in enumerate(pivot.row_fields) if field != "from"]
    has_theirs = any(pivot.rows[k][0] != MEASURED for k in kept)
    source = (Head(text="from", is_number=False),) if has_theirs else ()
    return Part(
        name=name,
        heads=(*(Head(text=pivot.row_fields[i], is_number=False) for i in fields), *heads, *source),
        rows=tuple(
            (
                *(_field_text(pivot.row_fields[i], pivot.rows[k][i]) for i in fields),
                *(_text(pivot.cells[k][p]) for p in places),
                *(pivot.rows[k][:1] if has_theirs else ()),
            )
            for k in kept
        ),
        theirs=tuple(i for i, k in enumerate(kept) if pivot.rows[k][0] != MEASURED),
    )


def _field_text(name: str, text: str) -> str:
    return gpu_name(text) if name == "gpu" and text else text


def _text(cell: Any) -> str:
    return "OOM" if cell.status == "oom" else str(cell.text or UNKNOWN)


def fits(result: StudyTable) -> None:
    """Draw the fitted exponents, a table for each table that was fitted."""
    if not result.fits:
        return
    st.subheader("Fitted growth", anchor=False)
    for title, group in groupby(result.fits, key=attrgetter("table")):
        rows = list(group)
        quantity = f"{rows[0].of.partition(' (')[0]} in {field_title(rows[0].x).partition(' (')[0]}"
        heads = (
            Head(text="series", is_number=False),
            Head(text="from", is_number=False),
            Head(text=f"exponent of {quantity}", subs=("all points", "95 % interval", "points")),
            Head(text=f"of the largest {TAIL_POINTS} only", subs=("exponent", "95 % interval")),
        )
        st.markdown(f"**{plain_markdown(title)}**")
        printed_table(heads, [_fit(row) for row in rows], label=f"Fitted exponents: {title}")


def _fit(row: FitRow) -> list[str]:
    tail = UNKNOWN if row.tail_exponent is None else significant(row.tail_exponent)
    return [
        row.label,
        row.provenance,
        significant(row.exponent),
        _interval(row.ci95),
        str(row.num_points),
        tail,
        _interval(row.tail_ci95),
    ]


def _interval(ci95: tuple[float, float] | None) -> str:
    return f"{ci95[0]:.2f} to {ci95[1]:.2f}" if ci95 else UNKNOWN


def notes(result: StudyTable) -> None:
    """Draw where published figures come from."""
    for note in result.notes:
        st.caption(plain_markdown(note))
