"""What goes to stdout (the answer) and to stderr (everything else)."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.console import counted, note, print_json
from core.numbers import decimal

__all__ = [
    "counted",
    "megabytes",
    "milliseconds",
    "note",
    "one_line",
    "percent",
    "print_json",
    "print_table",
]


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows under headings, text to the left and numbers to the right."""
    cells = [[_cell(row.get(c)) for c in columns] for row in rows]
    widths = [max([len(c), *(len(r[i]) for r in cells)]) for i, c in enumerate(columns)]
    numeric = [all(isinstance(r.get(c), int | float | None) for r in rows) for c in columns]
    for line in [list(columns), *cells]:
        padded = [
            text.rjust(w) if right else text.ljust(w)
            for text, w, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(padded).rstrip())


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return decimal(value)
    return one_line(str(value))


def one_line(text: str) -> str:
    """Return a text that cannot break a line or steer the terminal: names come from anybody."""
    return "".join(c if c.isprintable() else " " for c in text)


def milliseconds(value_ns: float | None) -> str:
    """Return a time in ms with four digits, `-` when unknown."""
    return "-" if value_ns is None else f"{decimal(value_ns / 1e6)} ms"


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage, `-` when unknown."""
    return "-" if fraction is None else f"{100 * fraction:.1f} %"


def megabytes(num_bytes: float | None) -> str:
    """Return bytes in MB (10^6 B), `-` when unknown."""
    return "-" if num_bytes is None else f"{num_bytes / 1e6:,.1f} MB"
