"""Parse the arguments, run one command, and turn every failure into one line and an exit code."""

import importlib
import io
import logging
import os
import re
import sqlite3
import sys
import traceback
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from core import VERSION
from core.config import DataDir, data_dir
from core.console import (
    EXIT_INTERRUPTED,
    LineParser,
    fail,
    flushed,
    inert_output,
    refusal,
    stop_writing,
    wants_json,
)
from core.errors import AppError, UserError

COMMANDS = {
    "up": "start the dashboard, its workers and the queue",
    "submit": "queue a workload, or a sweep of several values",
    "profile": "profile any program, unchanged, and store the results as a run",
    "run": "run a workload here and write a bundle",
    "import": "store capture files or a bundle as a run",
    "runs": "list runs",
    "show": "show one run",
    "compare": "compare two runs or groups of runs",
    "trend": "follow a job over time, and fail if it got worse",
    "bisect": "find the commit that made a program slower or faster",
    "study": "print a study's table",
    "classify": "classify kernel names",
    "reclassify": "apply the current kernel rules to all runs",
    "reparse": "read stored captures again",
    "advise": "list changes worth trying, with predicted latency",
    "project": "project a run's latency to another GPU",
    "tag": "add or remove tags",
    "pin": "make a run the baseline of its kind",
    "delete": "delete runs",
    "cancel": "cancel a queued or running run",
    "retry": "queue a finished run again",
    "demo": "load the example runs",
    "doctor": "check GPUs, tools, permissions and the broker",
    "worker": "start a worker for a dashboard on another host",
    "token": "make, list or revoke tokens for workers on other hosts",
    "gpu": "list known GPUs, or forget one",
    "ingest": "start the process that reads finished runs",
    "test": "run the test suite",
}
"""Every command, in the order of the help; `app/cli/NAME.py` holds it, or the one named below."""
_HELD_BY = {
    "import": "import_",
    **dict.fromkeys(("cancel", "retry", "pin", "tag"), "edit"),
    **dict.fromkeys(("run", "worker", "profile", "test"), "pass_on"),
}
WRITES_DATA = ("up", "submit", "import", "reparse", "reclassify", "demo", "ingest", "token")
"""Commands that write the data directory and nothing else: what they make is its owner's alone."""
_PASSED_ON = ("run", "worker", "profile")
"""Commands whose words another program reads: nothing after them is ours."""
_WITH_PROGRAM = ("bisect",)
"""Commands that run a program: its words stand behind `--`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never lets a traceback out."""
    arguments = _joined(list(sys.argv[1:] if argv is None else argv))
    own_words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    is_json = wants_json(own_words)
    if isinstance(sys.stdout, io.TextIOWrapper):  # as JSON wants it, whatever the locale
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    with inert_output():
        return _answered(arguments, is_json)


def _answered(arguments: list[str], is_json: bool) -> int:
    try:
        options = _options(arguments)
        data = data_dir(getattr(options, "data", None))
    except UserError as exc:
        return fail(str(exc), exc.exit_code, is_json=is_json)
    except SystemExit as asked:  # --help and --version
        return flushed(int(asked.code or 0))
    except OSError:
        return stop_writing(0)
    if options is None:
        return flushed(0)
    return _run(options, data, is_json)


def _joined(words: list[str]) -> list[str]:
    """Join `--filter -tag:old` into one word: argparse takes its value for an option."""
    joined: list[str] = []
    for word in words:
        is_value = joined[-1:] == ["--filter"] and re.match("-[^-]", word) and word != "-h"
        if is_value:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _options(arguments: list[str]) -> Namespace | None:
    """Return the parsed words; None when there is no command, after printing the help."""
    place = _command_place(arguments)
    wanted = arguments[place] if place < len(arguments) else None
    parser = _parser(wanted)
    if wanted in _PASSED_ON:
        options = parser.parse_args(arguments[: place + 1])
        options.rest = arguments[place + 1 :]
    elif wanted in _WITH_PROGRAM:
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        options = parser.parse_args(arguments[:cut])
        options.program = arguments[cut + 1 :]
    else:
        options = parser.parse_args(arguments)
    if getattr(options, "command", None) is None:
        parser.print_help()
        return None
    return options


def _command_place(arguments: Sequence[str]) -> int:
    """Return the index of the first word that is neither an option nor the value of --data."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 2 if arguments[place] == "--data" else 1
    return place


def _run(options: Namespace, data: DataDir, is_json: bool) -> int:
    if options.command in WRITES_DATA:
        os.umask(0o077)
    try:
        code: int = options.run(options, data)
        if sys.stdout is not None:  # None: closed by the caller
            sys.stdout.flush()
        return code
    except AppError as exc:
        return fail(str(exc), exc.exit_code, is_json=is_json)
    except KeyboardInterrupt:
        return fail("stopped", EXIT_INTERRUPTED, is_json=is_json)
    except BrokenPipeError:
        return stop_writing(0)
    except Exception as exc:  # top-level handler: anything that is not an AppError is our bug
        refused = _refused(exc, data)
        if refused is not None:
            return fail(refused, UserError.exit_code, is_json=is_json)
        message = f"internal error: {type(exc).__name__}: {exc} (details: {_log_bug(data)})"
        return fail(message, 3, is_json=is_json)


def _refused(exc: Exception, data: DataDir) -> str | None:
    if isinstance(exc, sqlite3.OperationalError):
        return f"{data.db_path}: {exc}; see `warpboard doctor`"
    if type(exc) is sqlite3.DatabaseError:
        return f"{data.db_path}: damaged ({exc}); restore a copy, or choose another --data folder"
    if isinstance(exc, UnicodeEncodeError) and exc.reason == "surrogates not allowed":
        return f"{exc.object[:100]!r}: not valid UTF-8"
    if isinstance(exc, ModuleNotFoundError) and not _is_ours(exc.name or ""):
        return (
            f"this command needs {exc.name}, which is not installed here: "
            "pip install 'warpboard[dashboard]'; `profile` needs nothing more"
        )
    return refusal(exc)


def _is_ours(module: str) -> bool:
    """Say whether a module is a part of this product: that one is missing is a bug."""
    return (Path(__file__).parents[2] / module.partition(".")[0]).is_dir()


def _log_bug(data: DataDir) -> str:
    path = data.logs / "errors.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            log.write(traceback.format_exc() + "\n")
    except OSError:
        logging.exception("no log could be written")
        return "above"
    return str(path)


def _parser(wanted: str | None) -> ArgumentParser:
    parser = LineParser(prog="warpboard", description="Run, keep and compare GPU profiling runs.")
    parser.add_argument("--version", action="version", version=f"warpboard {VERSION}")
    parser.add_argument("--data", metavar="DIR", help="data directory (WARPBOARD_DATA, ./data)")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument("--data", metavar="DIR", default=SUPPRESS, help="data directory")
        if name == wanted:
            _add(command, name)
    return parser


def _add(parser: ArgumentParser, name: str) -> None:
    command = importlib.import_module(f"app.cli.{_HELD_BY.get(name, name)}")
    command.arguments(parser)
    parser.set_defaults(run=command.run)
