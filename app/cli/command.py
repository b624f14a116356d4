"""What a command module holds, and what every command gets."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from core.config import DataDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: `COMMAND` of a module in this package."""

    help: str
    "One line for the list of commands."
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, DataDir], int]
    "Returns the exit code: 0 done, 1 the check said no, 2 wrong input, 3 the job failed."
    has_json: bool = True


def add_json(parser: ArgumentParser) -> None:
    """Add `--json`: exactly one JSON document on stdout."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")
