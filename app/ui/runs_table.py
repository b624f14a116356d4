"""The table of runs, and what can be done with chosen rows."""

import hashlib
from collections.abc import Iterable
from typing import Any

import pandas as pd
import streamlit as st

from analysis.definitions import LISTED, Definition, tooltip
from app.ui import data, links
from app.ui.format import count, fixed_format, many
from app.ui.shape import is_there, params_columns, run_table, status_text, two_sides
from app.ui.widgets import (
    STATUS_COLOURS,
    plain_markdown,
    said_plainly,
    show_table,
    table_height,
)
from core.errors import AppError
from db import runs

COLUMNS = [
    "name",
    "status",
    "workload",
    "GPU",
    "parameters",
    "latency ms",
    "\u00b1 %",
    "samples",
    "kernel ms / step",
    "idle %",
    "idle of",
    "GEMM %",
    "peak memory GB",
    "tags",
    "baseline",
    "notes",
    "source",
    "age",
    "created",
    "id",
    "error",
]
DEFAULT_COLUMNS = [
    "status",
    "name",
    "GPU",
    "latency ms",
    "\u00b1 %",
    "kernel ms / step",
    "idle %",
    "idle of",
    "GEMM %",
    "peak memory GB",
    "parameters",
    "tags",
    "age",
]

_NAME_WIDTH = 310
_MOST_PAGE_DIGITS = 6


def rows_key(ids: Iterable[object]) -> str:
    """Return a key for a table of these rows in this order.

    A table's selection is row numbers: kept for other rows, it would mean runs nobody chose.
    """
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]


def _config(table: pd.DataFrame, key: str) -> dict[str, object]:
    return {
        "open": st.column_config.ButtonColumn(
            "", key=f"{key}_open", type="tertiary", pinned=True, width=44
        ),
        "name": st.column_config.TextColumn(width=_NAME_WIDTH),
        "status": st.column_config.MultiselectColumn(
            options=[status_text(s) for s in STATUS_COLOURS],
            color=list(STATUS_COLOURS.values()),
            width=96,
        ),
        "GPU": st.column_config.TextColumn(width=118),
        **{d.list_title: _number(d, table) for d in LISTED},
        "\u00b1 %": st.column_config.NumberColumn(
            format="%.1f", help="Half of the 95 % interval", width=60
        ),
    }


_WIDTHS = {"latency ms": 92, "kernel ms / step": 120, "idle %": 66, "GEMM %": 76}
_FORMATS = {"%": "%.1f", "GB": "%.2f", "samples": "%d"}


def _number(definition: Definition, table: pd.DataFrame) -> object:
    """Return the column of one metric: its definition as help, decimals that line up."""
    title = definition.list_title
    shown = _FORMATS.get(title.split()[-1]) or fixed_format(table[title])
    of_cpu = " Of a CPU run: its operators' own time." if title.startswith("kernel") else ""
    return st.column_config.NumberColumn(
        format=shown, help=tooltip(definition.key) + of_cpu, width=_WIDTHS.get(title, 118)
    )


def asked_page() -> int:
    """Return the page of the list, from 1: that of the link until the pager below is drawn."""
    asked = str(st.session_state.get("page") or st.query_params.get("page", ""))
    is_page = asked.isascii() and asked.isdigit() and len(asked) <= _MOST_PAGE_DIGITS
    return max(1, int(asked)) if is_page else 1


def draw(frame: pd.DataFrame, columns: list[str], total: int) -> None:
    """Draw one page of runs with what can be done to chosen rows above it.

    An open button leads to the run.
    """
    bar = st.container(horizontal=True, vertical_alignment="center", key="runs_bar")
    table = run_table(frame)
    extra = params_columns(frame) if "parameters" in columns else pd.DataFrame(index=frame.index)
    order: list[str] = ["open"]
    for column in columns:
        order += list(extra.columns) if column == "parameters" else [column]
    shown = table.join(extra.rename(columns=lambda c: c if c not in table else f"{c} (param)"))
    shown = shown[[c for c in shown if _has_value(shown[c])]]
    shown.insert(0, "open", ":material/open_in_full:")
    key = f"runs_{rows_key(frame['id'])}"
    event = show_table(
        shown[[c for c in order if c in shown]],
        column_config=_config(table, key) | _param_widths(extra),
        key=key,
        on_select="rerun",
        selection_mode="multi-row",
        height=table_height(frame, 720),
        alt="Runs that match the filter, one a row",
    )
    click = st.session_state.get(f"{key}_open")
    if click is not None:
        links.open_run(str(frame["id"].iloc[click.row]))
    chosen = [r for r in event.selection.rows if r < len(frame)]
    if chosen:
        _actions(bar, frame.iloc[chosen])
    else:
        part = f"{count(len(frame))} of " if total > len(frame) else ""
        bar.caption(f"{part}{many(total, 'run')}. Choose rows to compare, tag, pin or delete.")
    st.caption("Columns without any value are left out.")


def _param_widths(extra: pd.DataFrame) -> dict[str, object]:
    longest = {c: max(len(c), int(extra[c].str.len().max())) for c in extra}
    return {c: st.column_config.TextColumn(width=min(170, 24 + 8 * n)) for c, n in longest.items()}


def _has_value(column: pd.Series) -> bool:
    """Say whether any cell says something: an all-empty column is left out."""
    return any(is_there(v) and str(v) not in ("", "False") for v in column.to_list())


def _actions(bar: Any, rows: pd.DataFrame) -> None:
    ids = rows["id"].to_list()
    bar.markdown(f"**{len(ids)} chosen**", width="content")
    if len(ids) == 1 and bar.button("Open", icon=":material/open_in_new:", type="primary"):
        links.open_run(ids[0])
    if len(ids) > 1 and bar.button("Compare", icon=":material/compare_arrows:", type="primary"):
        links.open_compare(*two_sides(rows))
    with bar.popover("Tag", icon=":material/label:"):
        _tag_form(ids)
    if len(ids) == 1 and bar.button(
        "Pin as baseline",
        icon=":material/keep:",
        help="Newer runs of the same measurement are held against it on the Overview",
    ):
        _do(lambda: _pin(ids[0]), "Pinned as baseline")
    if bar.button("Delete", icon=":material/delete:"):
        confirm_delete(ids)


def _tag_form(ids: list[str]) -> None:
    with st.form("tag_form", border=False):
        added = st.text_input("Add tags", placeholder="paper week-48")
        removed = st.text_input("Remove tags")
        if st.form_submit_button("Apply", type="primary"):
            _do(lambda: _tag(ids, added.split(), removed.split()), "Tags changed")


def _tag(ids: list[str], added: list[str], removed: list[str]) -> None:
    with data.database() as db:
        for run_id in ids:
            runs.set_tags(db, run_id, added, removed)


def _pin(run_id: str) -> None:
    with data.database() as db:
        runs.pin(db, run_id)


@st.dialog("Delete runs?")
def confirm_delete(ids: list[str]) -> None:
    """Ask once, then delete runs with their captures."""
    go = "goes" if len(ids) == 1 else "go"
    st.text(f"{many(len(ids), 'run')} with measurements and stored captures {go} for good.")
    if st.button("Delete", type="primary", icon=":material/delete:"):
        with said_plainly():
            delete(ids)
        st.rerun()


def delete(ids: list[str]) -> None:
    """Delete runs, their captures and spans; UserError when one is at work."""
    with data.database() as db:
        runs.delete_runs(db, ids)
    paths = data.paths()
    runs.remove_folders((paths.captures, paths.spans, paths.uploads), ids)


def _do(action: object, said: str) -> None:
    try:
        action()  # type: ignore[operator]
    except AppError as exc:
        st.error(plain_markdown(str(exc)), icon=":material/error:")
        return
    st.toast(said, icon=":material/check:")
    st.rerun()


def open_table(frame: pd.DataFrame, *, key: str) -> None:
    """Draw a short table of runs whose rows open the run."""
    table = run_table(frame)
    shown = table[
        ["status", "name", "GPU", "latency ms", "idle %", "idle of", "peak memory GB", "age"]
    ]
    shown = shown[[c for c in shown if _has_value(shown[c])]]
    shown.insert(0, "open", ":material/open_in_full:")
    key = f"{key}_{rows_key(frame['id'])}"
    show_table(
        shown,
        column_config=_config(table, key),
        key=key,
        alt="Runs, newest first",
    )
    click = st.session_state.get(f"{key}_open")
    if click is not None:
        links.open_run(str(frame["id"].iloc[click.row]))
