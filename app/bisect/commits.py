"""The commits between two, and a folder for each of them; the user's working tree is not touched.

Folders are git worktrees in a scratch folder of our own. They share the repository's objects, so
one costs the files alone; the entries that git keeps for them go with them.
"""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import ToolUnavailableError, UserError
from core.git import run_git

TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit."""

    sha: str
    subject: str

    @property
    def short(self) -> str:
        return self.sha[:10]


def git(folder: Path, *words: str) -> str:
    """Return what a git command prints; UserError with its own words when it fails."""
    try:
        done = run_git(folder, *words, timeout_s=TIMEOUT_S)
    except FileNotFoundError as error:
        raise ToolUnavailableError("git", "is not installed", "install git") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git {words[0]}: took over {TIMEOUT_S} s") from error
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()
        raise UserError(f"git {words[0]}: {output[-1] if output else 'failed'}")
    return done.stdout.decode(errors="replace")


def repository_of(folder: Path) -> Path:
    """Return the top of the working tree that holds a folder; UserError where there is none."""
    return Path(git(folder, "rev-parse", "--show-toplevel").strip())


def commits_between(repository: Path, good: str, bad: str) -> list[Commit]:
    """Return the commits from GOOD (first) to BAD (last), along the first parents of BAD.

    UserError where GOOD is no such ancestor of BAD: between the two lies no line then.
    """
    first, last = (_commit(repository, name) for name in (good, bad))
    if first.sha == last.sha:
        raise UserError(f"bisect: {good} and {bad} are the same commit {first.short}")
    words = ("log", "--first-parent", "--reverse", "--format=%H%x09%s", f"{first.sha}..{last.sha}")
    lines = git(repository, *words).splitlines()
    commits = [Commit(sha=sha, subject=text) for sha, _, text in (x.partition("\t") for x in lines)]
    parents = git(repository, "rev-list", "--first-parent", last.sha).split()
    if first.sha not in parents or not commits:
        raise UserError(
            f"bisect: {good} ({first.short}) is not before {bad} ({last.short}) on its line of "
            "first parents; name a commit that is"
        )
    return [first, *commits]


def has_changes(repository: Path) -> bool:
    """Say whether tracked files differ from the commit that is checked out."""
    words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return bool(git(repository, *words).strip())  # a submodule has filters of its own: not entered


def merged_line(repository: Path, sha: str) -> tuple[str, str] | None:
    """Return where the branch that a merge brought in begins and ends; None where it is no merge.

    Both are commits that `bisect` takes. None too where they share no commit before.
    """
    first, *others = git(repository, "rev-list", "--parents", "-n1", sha).split()[1:] or [""]
    if not others:
        return None
    try:
        base = git(repository, "merge-base", first, others[0]).strip()
    except UserError:
        return None
    return base[:10], others[0][:10]


def _commit(repository: Path, name: str) -> Commit:
    if name.startswith("-"):
        raise UserError(f"bisect: {name!r} is not a commit")
    line = git(repository, "log", "-1", "--format=%H%x09%s", name, "--").strip("\n")
    sha, _, subject = line.partition("\t")
    if not sha:
        raise UserError(f"bisect: {name!r} is not a commit")
    return Commit(sha=sha, subject=subject)


@dataclass(slots=True)
class Checkouts:
    """Worktrees of commits, created on first use."""

    repository: Path
    scratch: Path
    folders: dict[str, Path] = field(default_factory=dict)
    _entries: list[Path] = field(default_factory=list)

    def folder(self, commit: Commit) -> Path:
        """Return the folder of a commit."""
        if commit.sha not in self.folders:
            path = self.scratch / commit.short
            git(self.repository, "worktree", "add", "--detach", str(path), commit.sha)
            self.folders[commit.sha] = path
            self._entries.append(Path(git(path, "rev-parse", "--absolute-git-dir").strip()))
        return self.folders[commit.sha]

    def remove(self) -> None:
        """Remove every folder and git's entries for them."""
        for path in self.folders.values():
            with contextlib.suppress(UserError, ToolUnavailableError):
                git(self.repository, "worktree", "remove", "--force", "--force", str(path))
        shutil.rmtree(self.scratch, ignore_errors=True)
        for entry in self._entries:
            if entry.parent.name == "worktrees":
                shutil.rmtree(entry, ignore_errors=True)


@contextmanager
def checkouts(repository: Path) -> Iterator[Checkouts]:
    """Give folders for commits; they are gone afterwards, whatever happened."""
    made = Checkouts(
        repository=repository, scratch=Path(tempfile.mkdtemp(prefix="warpboard-bisect-"))
    )
    try:
        yield made
    finally:
        made.remove()
