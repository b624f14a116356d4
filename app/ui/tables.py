"""Tables of frames: what a column holds decides how it looks; and tables at full height, as text.

Numbers line up at the decimals they need, text that is a number stands right, kernels' names are
cut where they do not differ and stand whole in the last column, classes are chips.
`st.dataframe` draws on a canvas in its own scrolling box; a printed table is part of the page and
can be read aloud, searched and copied.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from analysis.classify import distinct_labels
from analysis.colours import category_colour, chip_colour
from app.ui.format import UNKNOWN, count_format, fixed_format
from app.ui.shape import is_there
from core.plain_text import MAX_CELL_CHARS, cut, escape, is_formula, visible

_LONG_CHARS = 34
"A longer text, a kernel's name, is set in several lines."

_THEIRS = ' class="wb-theirs"'
_MARKED = {"fault": "wb-fault", "OOM": "wb-oom"}
"Words that are highlighted when a cell holds nothing else."


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The heading of one or several columns that stand beside each other."""

    text: str
    subs: tuple[str, ...] = ()
    "The columns below it; () for a column of its own."
    is_number: bool = True


def printed_table(
    heads: Sequence[Head], rows: Sequence[Sequence[str]], *, label: str, muted: Sequence[int] = ()
) -> None:
    """Draw a table; every text is escaped. `muted`: places of rows that are not ours."""
    st.html(table_html(heads, rows, label=label, muted=muted))


def table_html(
    heads: Sequence[Head], rows: Sequence[Sequence[str]], *, label: str, muted: Sequence[int] = ()
) -> str:
    """Return the table as HTML."""
    is_number = [h.is_number for h in heads for _ in h.subs or ("",)]
    is_muted = set(muted)
    body = "".join(
        f"<tr{_THEIRS if i in is_muted else ''}>"
        + "".join(_cell(text, n) for text, n in zip(row, is_number, strict=True))
        + "</tr>"
        for i, row in enumerate(rows)
    )
    name = escape(label)
    return (
        f'<div class="wb-printed" role="region" aria-label="{name}" tabindex="0">'
        f"<table><thead>{_head(heads)}</thead><tbody>{body}</tbody></table></div>"
    )


def _head(heads: Sequence[Head]) -> str:
    has_two = any(h.subs for h in heads)
    first = "".join(_heading(h, has_two) for h in heads)
    second = "".join(
        f'<th scope="col" class="wb-n">{escape(sub)}</th>' for h in heads for sub in h.subs
    )
    return f"<tr>{first}</tr>" + (f"<tr>{second}</tr>" if has_two else "")


def _heading(head: Head, has_two: bool) -> str:
    look = ' class="wb-n"' if head.is_number and not head.subs else ""
    if head.subs:
        return f'<th scope="colgroup" colspan="{len(head.subs)}">{escape(head.text)}</th>'
    span = ' rowspan="2"' if has_two else ""
    return f'<th scope="col"{span}{look}>{escape(head.text)}</th>'


def _cell(text: str, is_number: bool) -> str:
    kinds = (
        "wb-n" if is_number else "",
        "wb-long" if len(text) > _LONG_CHARS else "",
        _MARKED.get(text, ""),
    )
    look = " ".join(kind for kind in kinds if kind)
    return f'<td class="{look}">{escape(text or UNKNOWN)}</td>'


KERNEL_CHARS = 44
"Of a kernel's name in a table, cut in the middle: the cell would cut its end, where names differ."
KERNEL_WIDTH = 300
_NUMBER_TEXT = re.compile(rf"[<>~+\-\u2212]? ?[\d.\u202f]+([\u00a0 ][^\s]{{1,8}})?|{UNKNOWN}")
_NUMBER = st.column_config.NumberColumn
_TEXT = st.column_config.TextColumn


def show_table(
    frame: pd.DataFrame,
    *,
    helps: Mapping[str, str] | None = None,
    columns: Mapping[str, Any] | None = None,
    most_px: int | None = None,
    kernels: str = "kernel",
    **options: Any,
) -> Any:
    """Draw a table without row numbers; an empty cell shows a dash.

    `helps` explain columns, `columns` are looks of their own, `most_px` is the height from which it
    scrolls, `kernels` the column of whole names that is cut. Its toolbar offers the cells as CSV:
    none is a formula there, and none is endless.
    """
    looks = _looks(frame, helps or {}) | dict(columns or {})
    shown = frame
    if kernels in frame:
        labels = distinct_labels(tuple(frame[kernels]), KERNEL_CHARS)
        shown = frame.assign(**{kernels: frame[kernels].map(labels), "full name": frame[kernels]})
        looks |= {kernels: _TEXT(width=KERNEL_WIDTH), "full name": _TEXT(width="small")}
    if "category" in frame:
        looks["category"] = _chips(frame["category"])
        shown = shown.assign(category=[[c] for c in frame["category"]])
    if most_px is not None:
        options["height"] = table_height(frame, most_px)
    return st.dataframe(
        _inert(shown), hide_index=True, placeholder=UNKNOWN, column_config=looks, **options
    )


def _looks(frame: pd.DataFrame, helps: Mapping[str, str]) -> dict[str, Any]:
    looks: dict[str, Any] = {}
    for name, column in frame.items():
        title, about = str(name), helps.get(str(name))
        if pd.api.types.is_float_dtype(column):
            looks[title] = _NUMBER(format=_number_format(title, column), help=about)
        elif pd.api.types.is_numeric_dtype(column) and about:
            looks[title] = _NUMBER(help=about)
        elif texts := _texts(column):
            side: Any = "right" if all(map(_NUMBER_TEXT.fullmatch, texts)) else None
            looks[title] = _TEXT(help=about, alignment=side, width=_WIDTHS.get(title))
    return looks


_WIDTHS: Mapping[str, Any] = {"site": "large", "why": "large"}


def _number_format(title: str, column: "pd.Series[Any]") -> str:
    """Return one format for a column: counts whole where all are, shares with one decimal."""
    is_signed = title.startswith(("difference", "error"))
    if "%" in title:
        return "%+.1f" if is_signed else "%.1f"
    if count_format(column) == "%.0f":
        return "%+.0f" if is_signed else "%.0f"
    return fixed_format(column, most=2 if "\u00b5s" in title else 3, signed=is_signed)


def _texts(column: "pd.Series[Any]") -> list[str]:
    """Return the texts of a column of nothing else."""
    known = [v for v in column if isinstance(v, str) or is_there(v)]
    return known if all(isinstance(v, str) for v in known) else []


def _chips(categories: Iterable[object]) -> Any:
    """Return the column of kernel classes as chips; each cell of it is a list of one class."""
    classes = list(dict.fromkeys(map(str, categories)))
    colours = [chip_colour(category_colour(c)) for c in classes]
    return st.column_config.MultiselectColumn(options=classes, color=colours, width=110)


def _inert(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts no spreadsheet takes for formulas."""
    changed = {
        name: column.map(_inert_cell)
        for name, column in frame.items()
        if pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)
    }
    shown = frame.assign(**{str(k): v for k, v in changed.items()}) if changed else frame
    return shown.rename(columns=_inert_cell)


def _inert_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = cut(value, MAX_CELL_CHARS)
    return "\u200b" + visible(text) if is_formula(text) else visible(text)


def choose_row(
    frame: pd.DataFrame, *, key: str, first: "pd.Series | None", **options: Any
) -> int | None:
    """Draw a table of which one row can be chosen; return its place.

    `first` says of each row whether it is chosen when the table is drawn first; a table whose
    first row chosen is another one is drawn anew.
    """
    places = [] if first is None else [i for i, chosen in enumerate(first) if chosen][:1]
    event = show_table(
        frame,
        key=f"{key}_{places[0]}" if places else key,
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": places}} if places else None,
        **options,
    )
    rows = [place for place in event.selection.rows if place < len(frame)]
    return rows[0] if rows else None


def table_height(frame: object, most: int) -> int:
    """Return the height in pixels that shows all rows, at most `most`."""
    return min(most, 3 + 33 * (1 + max(1, len(frame))))  # type: ignore[arg-type]
