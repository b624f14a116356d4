"""Headline numbers from the registry: label, unit and definition of a card come from its key."""

from dataclasses import replace

from analysis.definitions import define, tooltip
from app.ui.format import UNKNOWN, bytes_, count, duration, is_known, percent, significant
from app.ui.widgets import Card


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
