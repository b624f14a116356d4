"""Arguments that several commands take alike, and what a check answers with."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.compare import GateAnswer

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
