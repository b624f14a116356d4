"""Which commit of its repository a program was at when it was measured."""

import hashlib
import subprocess
from pathlib import Path

from core.git import run_git

TIMEOUT_S = 10
_SHOWN = 12
_CHANGES = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")


def commit_of(folder: Path) -> dict[str, str]:
    """Return `commit` of the repository that holds the folder; {} where there is none, or no git.

    `0123456789ab + changes 1a2b3c4d` where files that git knows differ from it: other changes have
    another number. Files that git does not know are not looked at.
    """
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return {}
    changes = _git(folder, "diff", *_CHANGES, "HEAD")
    if changes is None:
        return {}
    shown = commit.decode("ascii", "replace").strip()[:_SHOWN]
    if changes:
        shown += f" + changes {hashlib.sha256(changes).hexdigest()[:8]}"
    return {"commit": shown}


def _git(folder: Path, *words: str) -> bytes | None:
    """Return what git prints, None when it fails."""
    try:
        done = run_git(folder, *words, timeout_s=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
