"""The table of runs, and what can be done with chosen rows, and help with the filter."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd
import streamlit as st

from analysis.definitions import LISTED, Definition, tooltip
from app.charts.base import cut
from app.ui import cached, data, links
from app.ui.format import count, fixed_format, many
from app.ui.shape import is_there, params_columns, run_table, status_text, two_sides
from app.ui.tables import show_table
from app.ui.widgets import STATUS_LOOKS, plain_markdown, said_plainly
from core.errors import AppError
from db import runs
from db.search import FIELDS, QuerySyntaxError

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

PHONE_COLUMNS = ["name", "latency ms"]
"What a screen holds that shows two columns."
_NAME_WIDTH, _PHONE_NAME_WIDTH, _PHONE_CHARS = 310, 160, 22
_MOST_PAGE_DIGITS = 6


def rows_key(ids: Iterable[object]) -> str:
    """Return a key for a table of these rows in this order.

    A table's selection is row numbers: kept for other rows, it would select the wrong runs.
    """
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]


def _table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows; on a phone names keep their end, in which those of a sweep differ."""
    table = run_table(frame)
    if not is_phone():
        return table
    return table.assign(name=[cut(str(n), _PHONE_CHARS) for n in table["name"]])


def is_phone() -> bool:
    """Say whether the page is read on a phone, as its browser tells."""
    return "Mobile" in (st.context.headers.get("User-Agent") or "")


def _config(table: pd.DataFrame, key: str, *, on_phone: bool) -> dict[str, object]:
    return {
        "open": st.column_config.ButtonColumn(
            "", key=f"{key}_open", type="tertiary", pinned=True, width=44
        ),
        "name": st.column_config.TextColumn(width=_PHONE_NAME_WIDTH if on_phone else _NAME_WIDTH),
        "status": st.column_config.MultiselectColumn(
            options=[status_text(s) for s in STATUS_LOOKS],
            color=[colour for _, colour in STATUS_LOOKS.values()],
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
    of_cpu = " For a CPU run: the operators' self time." if title.startswith("kernel") else ""
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
    table = _table(frame)
    extra = params_columns(frame) if "parameters" in columns else pd.DataFrame(index=frame.index)
    order: list[str] = ["open"]
    on_phone = is_phone()
    for column in [*PHONE_COLUMNS, *columns] if on_phone else columns:
        order += list(extra.columns) if column == "parameters" else [column]
    shown = table.join(extra.rename(columns=lambda c: c if c not in table else f"{c} (param)"))
    shown = shown[[c for c in shown if _has_value(shown[c])]]
    shown.insert(0, "open", ":material/open_in_full:")
    key = f"runs_{rows_key(frame['id'])}"
    event = show_table(
        shown[[c for c in dict.fromkeys(order) if c in shown]],
        columns=_config(table, key, on_phone=on_phone) | _param_widths(extra),
        key=key,
        on_select="rerun",
        selection_mode="multi-row",
        most_px=720,
        alt="Runs that match the filter, one per row",
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
    st.caption("Empty columns are hidden.")


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
        help="Newer runs of the same measurement are compared with it on the Overview",
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
    with cached.database() as db:
        for run_id in ids:
            runs.set_tags(db, run_id, added, removed)


def _pin(run_id: str) -> None:
    with cached.database() as db:
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
    with cached.database() as db:
        runs.delete_runs(db, ids)
    paths = data.paths()
    runs.remove_folders((paths.captures, paths.spans, paths.uploads), ids)


def _do(action: object, message: str) -> None:
    try:
        action()  # type: ignore[operator]
    except AppError as exc:
        st.error(plain_markdown(str(exc)), icon=":material/error:")
        return
    st.toast(message, icon=":material/check:")
    st.rerun()


def open_table(frame: pd.DataFrame, *, key: str) -> None:
    """Draw a short table of runs whose rows open the run."""
    table = _table(frame)
    on_phone = is_phone()
    first = PHONE_COLUMNS if on_phone else ["status", "name", "GPU", "latency ms"]
    wanted = [*first, "status", "GPU", "idle %", "idle of", "peak memory GB", "age"]
    shown = table[list(dict.fromkeys(wanted))]
    shown = shown[[c for c in shown if _has_value(shown[c])]]
    shown.insert(0, "open", ":material/open_in_full:")
    key = f"{key}_{rows_key(frame['id'])}"
    show_table(
        shown,
        columns=_config(table, key, on_phone=on_phone),
        key=key,
        alt="Runs, newest first",
    )
    click = st.session_state.get(f"{key}_open")
    if click is not None:
        links.open_run(str(frame["id"].iloc[click.row]))


_MOST_HINTS = 9
_KEYS = ("workload", "gpu", "status", "compile", "dtype", "batch", "tag")
"""Offered while the box names no key, in this order."""


def hints(query: str) -> None:
    """Draw terms that can be added to the filter; one press puts it into the box."""
    frame, _ = data.list_runs(limit=100)
    if frame.empty:
        return
    offered = completions(query, frame)
    if offered:
        st.pills(
            "Add to the filter",
            offered,
            key="filter_hint",
            format_func=plain_markdown,
            on_change=_take,
            label_visibility="collapsed",
        )


def completions(query: str, frame: pd.DataFrame) -> list[str]:
    """Return terms that complete the last word of the query, or that may follow it.

    `frame` are runs whose values are offered: after `key:` its values, after a part of a key the
    keys that begin so, else the most common terms that the query does not hold yet.
    """
    head, _, last = query.rpartition(" ")
    known = _values(frame)
    if ":" in last:
        key, _, begun = last.lstrip("-").partition(":")
        values = [v for v in known.get(key, []) if v.lower().startswith(begun.lower().strip('"'))]
        return [t for t in (_term(key, v) for v in values) if t != last][:_MOST_HINTS]
    if last:
        keys = sorted({*known, *FIELDS})
        return [f"{k}:" for k in keys if k.startswith(last.lower())][:_MOST_HINTS]
    used = {word.lstrip("-").partition(":")[0] for word in head.split()}
    offered = [_term(k, v) for k in _KEYS if k not in used for v in known.get(k, [])[:2]]
    return offered[: _MOST_HINTS - 1]


def _values(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return each key's values among these runs, the most common first; a lone value tells none."""
    columns = {
        "workload": frame["workload"].to_list(),
        "gpu": frame["gpu_model"].to_list(),
        "status": frame["status"].to_list(),
        "source": frame["source"].to_list(),
        "tag": [t for tags in frame["tags"] for t in str(tags).replace(",", " ").split()],
    }
    own = frozenset(columns)
    for params in frame["params"]:
        for name, value in params.items():
            if name not in own:
                columns.setdefault(name, []).append(value)
    counted = {k: Counter(str(v) for v in vs if is_there(v)) for k, vs in columns.items()}
    return {
        k: [value for value, _ in counts.most_common()]
        for k, counts in counted.items()
        if len(counts) > 1 or k in ("gpu", "tag")
    }


def _term(key: str, value: str) -> str:
    return f'{key}:"{value}"' if " " in value else f"{key}:{value}"


def _take() -> None:
    chosen = st.session_state.get("filter_hint")
    if not chosen:
        return
    query = str(st.session_state.get("q") or "")
    head, _, last = query.rpartition(" ")
    kept = query if not last else head
    st.session_state["q"] = f"{kept.strip()} {chosen}".strip() + ("" if chosen[-1] == ":" else " ")
    st.session_state["filter_hint"] = None


def syntax_error(query: str, exc: QuerySyntaxError) -> None:
    """Show a filter's error under the place where it is."""
    st.error(plain_markdown(str(exc)), icon=":material/error:")
    st.code(f"{query}\n{' ' * exc.position}^", language=None)
    with st.expander("Filter syntax", expanded=True):
        filter_help()


def filter_help() -> None:
    """Explain the filter language."""
    st.markdown(
        """
A run must match *every* term; a minus in front negates a term: `gpu:H100 -tag:old`

| kind | keys | example |
| --- | --- | --- |
| numbers | `latency` `kernel_time` (ms) `memory` `idle` `gemm` `samples` | `memory>2GB` |
| part of the text | `gpu` `name` `notes` `error` `worker` | `name:decode` |
| whole word | `status` `source` `tag` `id` `workload` | `status:done,oom` |
| parameters | any workload parameter | `compile:none batch:1,8` |
| free text | anything else, quotes keep spaces | `"max-autotune"` |
"""
    )
