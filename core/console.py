"""What every command line of the product does alike: `--set`, and a failure in one line."""

import contextlib
import errno
import itertools
import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TextIO, cast

from core.errors import UserError
from core.plain_text import inert

EXIT_INTERRUPTED = 130
MAX_PORT = 65_535
_MAX_NAME_CHARS = 300
_OTHER_FOLDER = "choose a folder you can write to"
_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EACCES: _OTHER_FOLDER,
    errno.EPERM: _OTHER_FOLDER,
    errno.EROFS: _OTHER_FOLDER,
    errno.ENOTDIR: _OTHER_FOLDER,
    errno.EEXIST: _OTHER_FOLDER,
    errno.ENAMETOOLONG: "give a shorter one",
    errno.ELOOP: "its links lead to each other",
}
"""What the host refuses, with the remedy."""


class LineParser(ArgumentParser):
    """Report a wrong argument in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        name = self.prog.removeprefix("warpboard").strip()
        raise UserError(f"{name}{': ' if name else ''}{message}; see `{self.prog} --help`")


def whole_number(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return what reads a number between these, as the `type` of an argument."""

    def read(text: str) -> int:
        if not text.isascii() or not minimum <= int(text) <= maximum:
            raise ValueError(text)
        return int(text)

    read.__name__ = f"whole number of {minimum} to {maximum}"  # argparse names the type by it
    return read


def seconds(text: str) -> float:
    """Read a time above 0, as the `type` of an argument."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


seconds.__name__ = "number of seconds above 0"


def word(text: str) -> str:
    """Read a text that is not empty, as the `type` of an argument."""
    if not text.strip():
        raise ValueError(text)
    return text


word.__name__ = "text that is not empty"


class _Inert:
    """A text stream on which nothing steers the terminal: names come from anybody."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(inert(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def inert_output() -> Iterator[None]:
    """Keep what is printed in the block from steering the terminal."""
    with contextlib.ExitStack() as stack:
        if sys.stdout is not None:
            stack.enter_context(contextlib.redirect_stdout(cast(TextIO, _Inert(sys.stdout))))
        if sys.stderr is not None:
            stack.enter_context(contextlib.redirect_stderr(cast(TextIO, _Inert(sys.stderr))))
        yield


def note(text: str) -> None:
    """Print a line for the person at the terminal, on stderr."""
    if sys.stderr is not None:  # None: closed; print would then take stdout
        with contextlib.suppress(OSError):
            print(inert(text), file=sys.stderr, flush=True)


@contextlib.contextmanager
def counted(what: str, every: int = 50) -> Iterator[Callable[[], None]]:
    """Give what is called for each of many things, and says on stderr how many they are by now.

    A terminal's line is written over; elsewhere a line is said at every so many.
    """
    numbers = itertools.count(1)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()

    def count() -> None:
        number = next(numbers)
        if is_terminal:
            print(f"\r{number} {what}", end="", file=sys.stderr, flush=True)
        elif number % every == 0:
            note(f"{number} {what}")

    try:
        yield count
    finally:
        if is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print one JSON document; ValueError for NaN, which no reader of JSON accepts."""
    if sys.stdout is not None:
        json.dump(value, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")


def wants_json(arguments: Iterable[str]) -> bool:
    """Say whether the words ask for a JSON document."""
    words = list(arguments)
    pairs = itertools.pairwise(words)
    return bool({"--json", "--format=json"} & set(words)) or ("--format", "json") in pairs


def fail(message: str, code: int, *, is_json: bool) -> int:
    """Say in one line what went wrong, for a script as a document too; return the exit code."""
    line = " ".join(message.split())
    note(f"warpboard: {line}")
    if is_json:
        try:
            print_json({"error": line, "exit_code": code})
        except OSError:
            return stop_writing(code)
    return flushed(code)


def flushed(code: int) -> int:
    """Write out what stdout still holds; return the exit code."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        return stop_writing(code)
    return code


def stop_writing(code: int) -> int:
    """Give up stdout: its reader went away (`| head`) or its disk is full; nothing more to say."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def refusal(error: BaseException) -> str | None:
    """Say what the host refused and what to do; None when the error is something else."""
    if not isinstance(error, OSError) or error.errno not in _REMEDIES:
        return None
    where = str(error.filename or "writing")[:_MAX_NAME_CHARS]
    return f"{where}: {error.strerror}; {_REMEDIES[error.errno]}"


def parse_assignments(texts: Sequence[str]) -> dict[str, str]:
    """Return name -> text of `--set name=text`; UserError for one without `=` or given twice."""
    assignments: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        name = name.strip()
        if not mark or not name or not value.strip():
            raise UserError(f"--set {text!r}: write it as NAME=VALUE")
        if name in assignments:
            raise UserError(
                f"--set {name} is given twice; write {name}={assignments[name]},{value}"
            )
        assignments[name] = value.strip()
    return assignments


def parse_sweep(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return name -> choices of `--set name=a,b`; a value that starts with `[` or `{` is whole."""
    sweep: dict[str, tuple[str, ...]] = {}
    for name, text in parse_assignments(texts).items():
        parts = (text,) if text[0] in "[{" else tuple(p.strip() for p in text.split(","))
        if not all(parts):
            raise UserError(f"--set {name}={text}: a value between commas is empty")
        sweep[name] = tuple(dict.fromkeys(parts))
    return sweep
