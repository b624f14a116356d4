"""One study: its charts, its tables as they would be printed, and the jobs that fill the gaps."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from analysis.studies import Pivot, StudyTable, Table, list_studies
from analysis.studies.engine.cells import MEASURED
from analysis.studies.engine.drawn import SPEAKING
from analysis.studies.engine.fits import TAIL_POINTS
from app.charts import studies as charts
from app.job_text import submit_command
from app.ui import data, links, style
from app.ui.format import UNKNOWN, significant
from app.ui.widgets import (
    chart,
    export_buttons,
    linked_select,
    plain_markdown,
    said_plainly,
    show_table,
    table_height,
)
from core.errors import UserError
from core.spec import JobSpec
from workloads.registry import parse_params

FIRST_STUDY = "decode-latency"


def inputs() -> tuple[str, str, bool]:
    """Draw the choice of study, the filter of runs, and whether to lay published figures beside."""
    known = {s.name: s for s in sorted(list_studies(), key=_place)}
    bar = st.columns([3, 3, 2], vertical_alignment="bottom")
    name = linked_select(
        bar[0],
        "Study",
        list(known),
        param="name",
        format_func=lambda n: known[n].title + (" (published)" if known[n].is_publication else ""),
    )
    query = bar[1].text_input(
        "Runs that take part",
        key="filter",
        bind="query-params",
        placeholder="every run that fits, or gpu:H100 tag:paper",
    )
    published = bar[2].toggle(
        "Published figures beside",
        key="published",
        bind="query-params",
        help="Figures of others, as printed there; always marked as published",
    )
    return str(name), query or "", bool(published) or known[str(name)].is_publication


def _place(study: Any) -> tuple[bool, bool, str]:
    """Order studies: the one most people come for first, publications last."""
    return (study.is_publication, study.name != FIRST_STUDY, study.title)


def head(found: StudyTable, query: str) -> None:
    """Draw what the study asks, the export, and the jobs that would fill the missing cells."""
    st.caption(plain_markdown(found.study.about))
    jobs = fillable(found.jobs)
    bar = st.container(horizontal=True)
    if jobs and bar.button(
        f"Run {len(jobs)} missing job{'s' if len(jobs) != 1 else ''}",
        icon=":material/play_arrow:",
        help="On the GPUs that the table names, as far as a worker serves them",
    ):
        with said_plainly():
            data.submit(jobs, name=found.study.name)
        st.switch_page(links.QUEUE)
    with bar.popover("Export", icon=":material/download:"):
        export_buttons(found, found.study.name)
    with bar.popover("Share", icon=":material/link:"):
        st.code(
            links.share_url("studies", name=found.study.name, filter=query),
            language=None,
            wrap_lines=True,
        )
    has_ours = (found.frame["provenance"] == "measured") & found.frame["value"].notna()
    if not has_ours.any():
        style.empty_state(
            "No run of yours fills this study yet",
            "Run the job below, import captures of such a job, or lay published figures beside.",
        )
        if found.jobs:
            st.code(submit_command(found.jobs[0]), language="sh", wrap_lines=True)


def fillable(jobs: tuple[Mapping[str, Any], ...]) -> list[JobSpec]:
    """Return the jobs that workers here can run; those of a GPU without a worker are left out."""
    from app.ui.submit_form import gpu_options

    served = gpu_options()
    found = []
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
        found.append(
            JobSpec(
                workload=str(job["workload"]),
                params=params,
                profilers=tuple(job.get("profilers") or ()) if gpu != "cpu" else ("trace",),
                repeats=int(job.get("repeats") or 1),
                gpu=gpu,
            )
        )
    return found


def draw_table(found: StudyTable, table: Table, pivot: Pivot) -> None:
    """Draw one table of the study: its chart where it has one, then its cells."""
    if not pivot.rows:
        return
    st.subheader(plain_markdown(table.title), anchor=False)
    fig = charts.draw(found.frame, table, pivot)
    if fig is not None and table.chart is not None:
        chart(fig, alt=f"{table.title}, as {table.chart.kind}")
    right = st.column_config.TextColumn(alignment="right")
    show_table(
        cells(pivot, table),
        column_config=dict.fromkeys(_labels(pivot, table), right),
        key=f"study_{table.title}",
        height=table_height(pivot.rows, 640),
        alt=f"Table: {table.title}",
    )


def cells(pivot: Pivot, layout: Table) -> pd.DataFrame:
    """Return the pivot as texts: OOM where it ran out of memory, a dash where nothing is known."""
    table: dict[str, list[str]] = {}
    for i, name in enumerate(pivot.row_fields):
        values = [row[i] for row in pivot.rows]
        if name != "from" or set(values) != {MEASURED}:
            table[name] = values
    for j, label in enumerate(_labels(pivot, layout)):
        table[label] = [_text(row[j]) for row in pivot.cells]
    return pd.DataFrame(table)


def _labels(pivot: Pivot, layout: Table) -> list[str]:
    """Return the headings of the columns of values, apart from those of the rows' fields.

    Of one value by one field, `seq_len 512 (%)`: what the value is stands over the table.
    """
    names = list(pivot.columns)
    if len(layout.values) == 1 and len(layout.columns) == 1:
        unit, field = layout.values[0].unit, layout.columns[0]
        texts = [name.rpartition(" / ")[0] or "not stated" for name in names]
        lead = "" if field in SPEAKING else f"{field} "
        names = [f"{lead}{text} ({unit})" if unit else f"{lead}{text}" for text in texts]
    return [f"{name} " if name in pivot.row_fields else name for name in names]


def _text(cell: Any) -> str:
    if cell.status == "oom":
        return "OOM"
    return cell.text or UNKNOWN


def fits(found: StudyTable) -> None:
    """Draw the fitted exponents."""
    if not found.fits:
        return
    st.subheader("Fitted growth", anchor=False)
    rows = [
        {
            "table": f.table,
            "series": f.label,
            "from": f.provenance,
            "exponent": significant(f.exponent),
            "95 % interval": _interval(f.ci95),
            "points": f.num_points,
            f"largest {TAIL_POINTS} alone": (
                UNKNOWN if f.tail_exponent is None else significant(f.tail_exponent)
            ),
            "its 95 % interval": _interval(f.tail_ci95),
        }
        for f in found.fits
    ]
    show_table(
        pd.DataFrame(rows), height=table_height(rows, 420), alt="Fitted exponents with intervals"
    )


def _interval(ci95: tuple[float, float] | None) -> str:
    return f"{ci95[0]:.2f} to {ci95[1]:.2f}" if ci95 else UNKNOWN


def notes(found: StudyTable) -> None:
    """Draw where published figures come from."""
    for note in found.notes:
        st.caption(plain_markdown(note))
