"""Which commit of its repository a program was at when it was measured. Standard library only."""

import hashlib
import os
import subprocess
from pathlib import Path

TIMEOUT_S = 10
_SHOWN = 12
_SAFE = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
"""Variables that would turn git to another repository than the folder's."""


def commit_of(folder: Path) -> dict[str, str]:
    """Return `commit` of the repository that holds the folder; {} where there is none, or no git.

    `0123456789ab + changes 1a2b3c4d` where files that git knows differ from it: other changes have
    another number. Files that git does not know are not looked at.
    """
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return {}
    changes = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD")
    if changes is None:
        return {}
    shown = commit.decode("ascii", "replace").strip()[:_SHOWN]
    if changes:
        shown += f" + changes {hashlib.sha256(changes).hexdigest()[:8]}"
    return {"commit": shown}


def _git(folder: Path, *words: str) -> bytes | None:
    """Return what git prints, None when it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in OF_ANOTHER_REPOSITORY}
    try:
        done = subprocess.run(
            ["git", *_SAFE, *words],
            cwd=folder,
            env={**environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
