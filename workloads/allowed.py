"""What the operator of a host allows own programs: which they are, where they run, their words."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from core.errors import UserError

COMMANDS = "WARPBOARD_ALLOW_COMMANDS"
FOLDERS = "WARPBOARD_ALLOW_FOLDERS"
MAX_WORDS = 256
MAX_WORD_CHARS = 4096


def allowed_program(words: Sequence[str]) -> str:
    """Return the real path of the program; UserError when the operator has not allowed it."""
    if not words:
        raise UserError('argv: [] names no program; give a JSON list such as ["/path/program"]')
    check_words(words)
    found = shutil.which(words[0])
    if found is None:
        raise UserError(f"argv: {words[0]!r} is not a program that can be run here")
    listed = _listed(COMMANDS)
    if not listed:
        raise UserError(f"command: off on this host; its operator sets {COMMANDS}=/path/of/program")
    real = os.path.realpath(found)
    if real not in {os.path.realpath(entry) for entry in listed}:
        raise UserError(f"argv: {real} is not in {COMMANDS} of this host")
    return real


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

    UserError unless it lies in the program's own folder or below one of WARPBOARD_ALLOW_FOLDERS:
    what is compared are real paths, so that a link leads nowhere else.
    """
    if not cwd:
        return None
    real = Path(os.path.realpath(cwd))
    roots = [Path(program).parent, *(Path(os.path.realpath(entry)) for entry in _listed(FOLDERS))]
    if not any(real.is_relative_to(root) for root in roots):
        raise UserError(f"cwd: {cwd} is neither beside the program nor below one of {FOLDERS}")
    if not real.is_dir():
        raise UserError(f"cwd: {cwd} is not a directory on this host")
    return str(real)


def _listed(variable: str) -> list[str]:
    return [entry for entry in os.environ.get(variable, "").split(":") if entry]
