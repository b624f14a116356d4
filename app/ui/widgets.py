"""Small pieces that several pages draw; a headline number has its words from the registry."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from analysis.definitions import define, tooltip
from app.charts.base import CONFIG, Chart
from app.ui import data, links
from app.ui.format import UNKNOWN, bytes_, count, duration, is_known, percent, significant
from app.ui.shape import status_text
from core.errors import AppError
from core.plain_text import MAX_CELL_CHARS, cut, visible

log = logging.getLogger(__name__)

STATUS_LOOKS = {
    "queued": ("schedule", "gray"),
    "claimed": ("hourglass_top", "blue"),
    "running": ("play_circle", "blue"),
    "ingesting": ("database", "blue"),
    "done": ("check_circle", "green"),
    "oom": ("memory", "orange"),
    "failed": ("error", "red"),
    "cancelled": ("cancel", "gray"),
    "interrupted": ("link_off", "orange"),
}
"""Icon and colour of a run's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One headline number."""

    label: str
    value: str
    note: str
    "How it was obtained, or why it is not known and how to get it."
    definition: str
    "Unit and definition, shown on hover."


def plain_markdown(text: str) -> str:
    """Return text that Streamlit's Markdown shows as it is, cut where it is very long.

    Addresses, `:icons:` and mail addresses are found in the finished text, whatever is escaped: a
    sign without width breaks them.
    """
    broken = _FOUND_LATER.sub("\\g<0>\u2060", visible(cut(str(text), MAX_CELL_CHARS)))
    return "".join("\\" + c if c in "\\`*_{}[]()#+-.!|<>~$:&^=" else c for c in broken)


def markdown_with_code(text: str) -> str:
    """Return text shown as it is, but for what stands between backticks: that is set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0 or not all(part.strip() for part in parts[1::2]):
        return plain_markdown(text)
    return "".join(f"`{p}`" if i % 2 else plain_markdown(p) for i, p in enumerate(parts))


_FOUND_LATER = re.compile(r":(?=[\w+/-]+:)|(?<=:)/(?=/)|\bwww(?=\.)|(?<=\w)@(?=\w)", re.IGNORECASE)
_LEAST_CARDS = 4
"A card wider than a quarter of the page holds its number apart from its neighbours."


def cards(items: Sequence[Card]) -> None:
    """Draw headline numbers in tiles that reflow with the width."""
    columns = max(_LEAST_CARDS, min(8, len(items)))
    grid = st.grid(columns, min_column_width=146, border=True, gap="small")
    for card in items:
        with grid.cell(), st.container(gap="xxsmall"):
            st.metric(card.label, card.value, help=plain_markdown(card.definition) or None)
            st.caption(plain_markdown(card.note))


def chart(fig: Chart, *, alt: str) -> None:
    """Draw a chart with its description for screen readers, unique on its page."""
    st.plotly_chart(fig.to_plotly(), key=f"chart {alt}", config=CONFIG, alt=alt)


def choose_point(fig: Chart, *, alt: str, key: str) -> int | None:
    """Draw a chart of which one point can be clicked; return that point's customdata.

    The key must change with what is drawn: a choice belongs to one drawing.
    """
    event = st.plotly_chart(
        fig.to_plotly(),
        key=key,
        config=CONFIG,
        alt=alt,
        on_select="rerun",
        selection_mode="points",
    )
    points = event.selection.points
    return _customdata(points[0].get("customdata")) if points else None


def _customdata(value: Any) -> int | None:
    first = value[0] if isinstance(value, list) and value else value
    return int(first) if isinstance(first, int | float) else None


def linked_select(
    place: Any, label: str, options: Sequence[str], *, param: str, **options_of_widget: Any
) -> str:
    """Draw a choice whose value, not its label, is in the address as `param`.

    A bound select box would write the label into the link, which changes with names and wording.
    """
    key = f"choice_{param}"
    asked = st.query_params.get(param)
    if key not in st.session_state and asked in options:
        st.session_state[key] = asked
    chosen = str(place.selectbox(label, options, key=key, **options_of_widget) or "")
    if chosen != (asked or ""):
        if chosen:
            st.query_params[param] = chosen
        else:
            st.query_params.pop(param, None)
    return chosen


def export_buttons(result: Any, name: str) -> None:
    """Draw one download per format; the file is made when its button is pressed."""
    for label, suffix, mime in data.EXPORTS:
        st.download_button(
            label,
            data=partial(data.export, result, suffix),
            file_name=f"{name}.{suffix}",
            mime=mime,
            on_click="ignore",
            width="stretch",
        )


def status_badge(status: str) -> None:
    """Draw a run's state with icon and colour."""
    icon, colour = STATUS_LOOKS[status]
    st.badge(status_text(status), icon=f":material/{icon}:", color=colour)  # type: ignore[arg-type]


def run_line(row: Mapping[str, Any]) -> Any:
    """Draw a run's state and the link to it; return the line, for what comes after them."""
    line = st.container(horizontal=True, vertical_alignment="center")
    with line:
        status_badge(row["status"])
    line.page_link(links.RUN, label=plain_markdown(row["name"]), query_params={"run_id": row["id"]})
    return line


def share(bar: Any, page: str, **params: str) -> None:
    """Draw what shows the address of a page with these inputs."""
    with bar.popover("Share", icon=":material/link:"):
        st.text("This page's address:")
        st.code(links.share_url(page, **params), language=None, wrap_lines=True)


BUG_TEXT = "This page failed"


@contextmanager
def page_border() -> Iterator[None]:
    """Log what a page raised with its traceback, and say so in one sentence."""
    try:
        yield
    except AppError as exc:
        st.error(plain_markdown(str(exc)), icon=":material/error:")
    except Exception:
        log.exception("page failed with %s", dict(st.query_params))
        st.error(
            f"{BUG_TEXT}. This is a bug in Warpboard, not a problem with your "
            "data: the details are in the dashboard's log (`logs/dashboard.log` "
            "in the data directory).",
            icon=":material/bug_report:",
        )


@contextmanager
def card_border(title: str) -> Iterator[None]:
    """Let a card that cannot be drawn fail alone: one line in its place, the rest in the log."""
    try:
        yield
    except Exception:  # top-level handler of a card: a bad record must not hide the other cards
        log.exception("the card of %s failed", title)
        st.caption(f"{plain_markdown(title[:80])}: cannot be shown; the log says why.")


@contextmanager
def said_plainly() -> Iterator[None]:
    """Show an expected failure as one message; everything else goes on to the server's log."""
    try:
        yield
    except AppError as exc:
        st.error(plain_markdown(str(exc)), icon=":material/error:")
        st.stop()


def shown(value: float | None, unit: str) -> str:
    """Return a stored number in its unit as text; a mean of counts may have a part."""
    if value is None or not is_known(value):
        return UNKNOWN
    if unit in ("ns", "ms"):
        return duration(value * (1e6 if unit == "ms" else 1))
    if unit == "B":
        return bytes_(value)
    if unit == "fraction":
        return percent(value)
    return count(value) if float(value).is_integer() else significant(value)


def figure(
    key: str, value: float | None, note: str = "", *, label: str = "", about: str = ""
) -> Card:
    """Return the card of a number of the registry; `about` goes before its definition."""
    definition = define(key)
    return Card(
        label=label or definition.label,
        value=shown(value, definition.unit),
        note=note,
        definition=about + tooltip(key),
    )


def two_figures(
    key: str,
    left: float | None,
    right: float | None,
    note: str = "",
    *,
    label: str = "",
    about: str = "",
) -> Card:
    """Return the card of a number on two sides."""
    unit = define(key).unit
    value = f"{shown(left, unit)} \u2192 {shown(right, unit)}"
    return replace(figure(key, None, note, label=label, about=about), value=value)
