"""A table at full height, as text that can be read aloud, searched and copied.

`st.dataframe` draws on a canvas in its own scrolling box; this one is part of the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app.ui.format import UNKNOWN
from core.plain_text import escape

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
