"""git in a possibly untrusted folder: no prompts, no hooks, no programs of its configuration.

A repository's own configuration names programs: filters, hooks, a file-system monitor, what fetches
missing objects. None of them runs. Those of the user's own configuration do. With it: which commit
of its repository a program was at when it was measured.
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path

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


_OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
"""Variables that would turn git to another repository than the folder's."""
_QUIET = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "log.showSignature=false",
    "submodule.recurse=false",
    "diff.submodule=short",  # else a git starts in the submodule, with that one's configuration
    "status.submoduleSummary=false",
    "safe.bareRepository=explicit",
    "advice.detachedHead=false",
)
_FILTER = re.compile(r"(filter\..*)\.(?:clean|smudge|process|required)", re.DOTALL)
_NOT_OFF = "fatal: its configuration has a filter that cannot be disabled: "


def git_environment() -> dict[str, str]:
    """Return the environment of a git that neither prompts nor fetches."""
    kept = {k: v for k, v in os.environ.items() if k not in _OF_ANOTHER_REPOSITORY}
    none = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    return {**kept, **none, "LC_ALL": "C"}


def run_git(folder: Path, *words: str, timeout_s: float) -> "subprocess.CompletedProcess[bytes]":
    """Return how a git command ended; OSError where there is no git, TimeoutExpired."""
    listed = _call(folder, ["config", "--show-scope", "--name-only", "-z", "--list"], timeout_s)
    if listed.returncode:
        return listed
    parts = listed.stdout.decode(errors="surrogateescape").split("\0")
    off = []
    for scope, name in zip(parts[::2], parts[1::2], strict=False):
        if scope in ("local", "worktree") and (match := _FILTER.fullmatch(name)):
            if "=" in name:  # `-c` ends a name at the first one
                message = (_NOT_OFF + name).encode(errors="replace")
                return subprocess.CompletedProcess(list(words), 128, b"", message)
            off += [f"{match[1]}.{key}=" for key in ("clean", "smudge", "process")]
            off += [f"{match[1]}.required=false"]
    return _call(folder, list(words), timeout_s, off=dict.fromkeys(off))


def _call(
    folder: Path, words: list[str], timeout_s: float, off: "dict[str, None] | None" = None
) -> "subprocess.CompletedProcess[bytes]":
    settings = [word for setting in (*_QUIET, *(off or {})) for word in ("-c", setting)]
    return subprocess.run(
        ["git", "--no-pager", "--no-optional-locks", *settings, *words],
        cwd=folder,
        env=git_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
