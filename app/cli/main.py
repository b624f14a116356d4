"""Parse the arguments, run one command, and turn every failure into one line and an exit code."""

import errno
import importlib
import itertools
import logging
import os
import sqlite3
import sys
import traceback
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import NoReturn

from app.cli.command import Command
from app.cli.output import note, print_json
from core import VERSION
from core.config import DataDir, data_dir
from core.errors import AppError, UserError

COMMANDS = {
    "up": "start the dashboard, its workers and the queue",
    "submit": "queue a workload, or a sweep of several values",
    "run": "run a workload here and leave a bundle",
    "import": "store capture files or a bundle as a run",
    "runs": "list runs",
    "show": "show one run",
    "compare": "compare two runs or groups of runs",
    "study": "print a study's table",
    "classify": "name the class of kernel names",
    "reclassify": "apply the present kernel rules to all runs",
    "reparse": "read stored captures again",
    "project": "project a run's latency to another GPU",
    "tag": "add or remove tags",
    "pin": "make a run the baseline of its kind",
    "delete": "delete runs",
    "cancel": "cancel a queued or running run",
    "retry": "queue an ended run again",
    "demo": "load the example runs",
    "doctor": "check GPUs, tools, permissions and the broker",
    "worker": "start a worker for a dashboard on another host",
    "token": "make a token for a worker on another host",
    "ingest": "start the process that reads finished runs",
    "test": "run the test suite",
}
"""Every command, in the order of the help; `app/cli/NAME.py` (or `NAME_.py`) holds it."""
_KEYWORDS = {"import": "import_"}
_PASSED_ON = ("run", "worker")
"""Commands whose words another program reads: nothing after them is ours."""
EXIT_INTERRUPTED = 130
_OTHER_FOLDER = "choose a --data folder that you may write to"
_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EACCES: _OTHER_FOLDER,
    errno.EPERM: _OTHER_FOLDER,
    errno.EROFS: _OTHER_FOLDER,
    errno.ENOTDIR: _OTHER_FOLDER,
    errno.EEXIST: _OTHER_FOLDER,
}
"""What the host refuses, with the remedy."""


class _Parser(ArgumentParser):
    """Report a wrong argument in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        name = self.prog.removeprefix("warpboard").strip()
        raise UserError(f"{name}{': ' if name else ''}{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never lets a traceback out."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_json = bool({"--json", "--format=json"} & _joined(arguments))
    try:
        options = _options(arguments)
    except UserError as exc:
        return _fail(is_json, exc.exit_code, str(exc))
    if options is None:
        return 0
    return _run(options, data_dir(getattr(options, "data", None)), is_json)


def _joined(arguments: Sequence[str]) -> set[str]:
    """Return each word with the next: `--format json` reads as `--format=json` does."""
    return {*arguments, *(f"{a}={b}" for a, b in itertools.pairwise(arguments))}


def _options(arguments: list[str]) -> Namespace | None:
    """Return the parsed words; None when there is no command, after printing the help."""
    place = _command_place(arguments)
    wanted = arguments[place] if place < len(arguments) else None
    parser = _parser(wanted)
    if wanted in _PASSED_ON:
        options = parser.parse_args(arguments[: place + 1])
        options.rest = arguments[place + 1 :]
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
    try:
        code: int = options.run(options, data)
        sys.stdout.flush()
        return code
    except AppError as exc:
        return _fail(is_json, exc.exit_code, str(exc))
    except KeyboardInterrupt:
        return _fail(is_json, EXIT_INTERRUPTED, "stopped")
    except BrokenPipeError:
        return _stop_writing(0)
    except Exception as exc:  # the border: what is neither refused nor expected is a bug of ours
        refused = _refused(exc, data)
        if refused is not None:
            return _fail(is_json, UserError.exit_code, refused)
        where = _log_bug(data)
        return _fail(is_json, 3, f"internal error: {type(exc).__name__}: {exc} (details: {where})")


def _refused(exc: Exception, data: DataDir) -> str | None:
    """Say what the host refused and what to do; None when the exception is something else."""
    if isinstance(exc, sqlite3.OperationalError):
        return f"{data.db_path}: {exc}; see `warpboard doctor`"
    if not isinstance(exc, OSError) or exc.errno not in _REMEDIES:
        return None
    return f"{exc.filename or 'writing'}: {exc.strerror}; {_REMEDIES[exc.errno]}"


def _fail(is_json: bool, code: int, message: str) -> int:
    line = " ".join(message.split())
    note(f"warpboard: {line}")
    if not is_json:
        return code
    try:
        print_json({"error": line, "exit_code": code})
        sys.stdout.flush()
    except OSError:
        return _stop_writing(code)
    return code


def _stop_writing(code: int) -> int:
    """Give up stdout: its reader went away (`| head`) or its disk is full; nothing more to say."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


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
    parser = _Parser(prog="warpboard", description="Run, keep and compare GPU profiling runs.")
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
    module = importlib.import_module(f"app.cli.{_KEYWORDS.get(name, name)}")
    command: Command = module.COMMAND
    command.arguments(parser)
    parser.set_defaults(run=command.run)
