"""What several commands take alike, what goes to stdout (the answer) and to stderr (the rest)."""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.console import counted, note, print_json
from core.numbers import decimal

if TYPE_CHECKING:
    from analysis.compare.gate import GateAnswer

UNDECIDED_EXIT = 4
"""Exit code of a check that could not decide, where `--on-inconclusive fail` asks for one."""


def add_json(parser: ArgumentParser) -> None:
    """Add `--json`: exactly one JSON document on stdout."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_run(parser: ArgumentParser, nargs: str | None = None) -> None:
    """Add the run that a command is about, or several of them with `nargs="+"`."""
    name = "ids" if nargs == "+" else "id"
    parser.add_argument(name, metavar="RUN", nargs=nargs, help="id, start of an id, or name")


def add_check(parser: ArgumentParser, fails_when: str, cannot_decide: str) -> None:
    """Add `--fail-above` and `--on-inconclusive`, which make a command a check for CI."""
    parser.add_argument(
        "--fail-above",
        type=_percentage,
        metavar="PCT",
        help=f"exit with 1 when {fails_when} by more than PCT percent",
    )
    parser.add_argument(
        "--on-inconclusive",
        choices=("pass", "fail"),
        default="pass",
        help=f"with --fail-above: the result of {cannot_decide}; fail exits with {UNDECIDED_EXIT}",
    )


def _percentage(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


_percentage.__name__ = "percentage of 0 or more"  # argparse names the type by it


def exit_code_of(answer: "GateAnswer", on_inconclusive: str) -> int:
    """Return the exit code of a check."""
    if answer == "regression":
        return 1
    return UNDECIDED_EXIT if answer == "undecided" and on_inconclusive == "fail" else 0


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
