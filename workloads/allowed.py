"""What the operator of a host allows own programs: which they are, where they run, their words."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from core.errors import UserError

COMMANDS = "WARPBOARD_ALLOW_COMMANDS"
FOLDERS = "WARPBOARD_ALLOW_FOLDERS"
MAX_WORDS = 256
MAX_WORD_CHARS = 4096
_INTERPRETER = re.compile(
    r"(python|pypy|bash|dash|zsh|sh|perl|ruby|node|julia|Rscript|java|lua|php)[\d.]*$"
    r"|(env|xargs|sudo|nohup|timeout|nice|torchrun|accelerate|deepspeed|mpirun|mpiexec|busybox)$"
)


def allowed_program(words: Sequence[str]) -> str:
    """Return where the program is; UserError when the operator has not allowed it.

    An entry of the list is a program, a folder of programs (with a `/` at its end), or either with
    a second word: the script, or folder of scripts, that must be the first argument. An interpreter
    runs whatever its arguments say, so it needs that second word; `*` allows every argument. What
    is compared are real paths, so that a link cannot stand in for another program.
    """
    if not words:
        raise UserError('argv: [] names no program; give a JSON list such as ["/path/program"]')
    check_words(words)
    if not Path(words[0]).is_absolute() and "/" in words[0]:
        raise UserError(f"argv: {words[0]!r} is relative; give an absolute path or a name")
    program = shutil.which(words[0])
    if program is None:
        raise UserError(f"argv: {words[0]!r} is not a program that can be run here")
    listed = _listed(COMMANDS)
    if not any(entry.strip() for entry in listed):
        raise UserError(f"command: off on this host; its operator sets {COMMANDS}=/path/of/program")
    check_entries(listed, program, words)
    return program  # not the real path: a virtual environment's python knows it by its link


def check_entries(listed: Sequence[str], program: str, words: Sequence[str]) -> None:
    """Raise UserError unless an entry of a host's list allows the program and its arguments."""
    real = os.path.realpath(program)
    split = [entry.split() for entry in listed if entry.strip()]
    entries = [entry for entry in split if _is_in(real, entry[0])]
    if not entries:
        raise UserError(f"argv: {real} is not in {COMMANDS} of this host")
    if not any(_allows_arguments(entry[1:], real, words[1:]) for entry in entries):
        named = [entry[1] for entry in entries if len(entry) > 1]
        wanted = " or ".join(named) if named else "a script that its operator names"
        raise UserError(
            f"argv: {real} may be run here with {wanted} as its first argument; "
            f"see {COMMANDS} of this host"
        )


def allowed_entries() -> list[str]:
    """Return the entries of this host's list, as its operator wrote them."""
    return [" ".join(entry.split()) for entry in _listed(COMMANDS) if entry.strip()]


def _is_in(real: str, entry: str) -> bool:
    """Say whether a real path is the entry, or inside the folder that it names."""
    place = os.path.realpath(entry)
    if entry.endswith("/"):
        return real.startswith(place.rstrip("/") + "/")
    return real == place


def _allows_arguments(rest: Sequence[str], real: str, arguments: Sequence[str]) -> bool:
    if not rest:
        return not _INTERPRETER.match(Path(real).name)
    if rest[0] == "*":
        return True
    if not arguments or not Path(arguments[0]).is_absolute():
        return False
    return _is_in(os.path.realpath(arguments[0]), rest[0])


def check_words(words: Sequence[str]) -> None:
    """Raise UserError for more arguments, or longer ones, than a person writes."""
    if len(words) > MAX_WORDS:
        raise UserError(f"argv: {len(words)} words are more than {MAX_WORDS}")
    for word in words:
        if len(word) > MAX_WORD_CHARS or "\0" in word:
            raise UserError(
                f"argv: a word must have at most {MAX_WORD_CHARS} characters and no NUL:"
                f" {word[:40]!r}..."
            )


def allowed_folder(cwd: str, program: str) -> str | None:
    """Return where the program runs; None is the run's own scratch folder.

    UserError unless it is in the program's own folder or below one of WARPBOARD_ALLOW_FOLDERS:
    what is compared are real paths, so that a link leads nowhere else.
    """
    if not cwd:
        return None
    real = Path(os.path.realpath(cwd))
    roots = [
        Path(os.path.realpath(program)).parent,
        *(Path(os.path.realpath(entry)) for entry in _listed(FOLDERS)),
    ]
    if not any(real.is_relative_to(root) for root in roots):
        raise UserError(f"cwd: {cwd} is neither beside the program nor below one of {FOLDERS}")
    if not real.is_dir():
        raise UserError(f"cwd: {cwd} is not a directory on this host")
    return str(real)


def _listed(variable: str) -> list[str]:
    return [entry for entry in os.environ.get(variable, "").split(":") if entry]
