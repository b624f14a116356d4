"""git in a repository of somebody else: nothing that its configuration names is run."""

import subprocess
from pathlib import Path

import pytest

from app.bisect.commits import checkouts, commits_between, has_changes
from core.git import commit_of

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.com")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def act(tmp_path: Path) -> Path:
    """Return a program that writes down that it was run."""
    program = tmp_path / "act"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/ran\ncat 2>/dev/null\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitattributes").write_text("*.py filter=f diff=d\n")
    for text in ("x = 1\n", "x = 2\n"):
        (folder / "model.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", text.strip())
    (folder / "model.py").write_text("x = 3\n")
    return folder


def hooks(repository: Path, act: Path) -> None:
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        (repository / ".git" / "hooks" / name).write_text(act.read_text())
        (repository / ".git" / "hooks" / name).chmod(0o755)


def included(repository: Path, act: Path) -> None:
    (repository / "more").write_text(f'[filter "f"]\n clean = {act} %f\n smudge = {act}\n')
    git(repository, "config", "include.path", "../more")


def filter_with_an_odd_name(repository: Path, act: Path) -> None:
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("*.py filter=a=b.c\n")
    config = repository / ".git" / "config"
    config.write_text(config.read_text() + f'[filter "a=b.c"]\n clean = {act}\n smudge = {act}\n')


def signature(repository: Path, act: Path) -> None:
    """Sign the last commit with what is not a signature, and have it checked when it is shown."""
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "gpg.program", str(act))
    commit = git(repository, "cat-file", "commit", "HEAD").encode()
    head, body = commit.split(b"\n\n", 1)
    signed = head + b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n aa\n -----END PGP SIGNATURE-----"
    done = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=repository, input=signed + b"\n\n" + body, capture_output=True, check=True,
    )  # fmt: skip
    git(repository, "update-ref", "HEAD", done.stdout.decode().strip())


def missing_object(repository: Path, act: Path) -> None:
    """Lose a file's content, which a promisor remote would be asked for."""
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(repository / ".git"),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(act),
    }.items():
        git(repository, "config", name, value)
    blob = git(repository, "rev-parse", "HEAD:model.py").strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def submodule(repository: Path, act: Path) -> None:
    """Have a folder that is a repository itself, with a configuration of its own."""
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / ".gitattributes").write_text("* filter=f\n")
    (inner / "a").write_text("1\n")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "inner")
    git(repository, "add", "inner")
    git(repository, "commit", "-qm", "with inner")
    git(inner, "config", "filter.f.clean", str(act))
    git(inner, "config", "core.fsmonitor", str(act))
    (inner / "a").write_text("2\n")


def submodule_shown_whole(repository: Path, act: Path) -> None:
    """Have the difference of a submodule told by a git that starts in it."""
    submodule(repository, act)
    inner = repository / "inner"
    git(inner, "config", "--unset", "filter.f.clean")
    git(inner, "config", "--unset", "core.fsmonitor")
    git(inner, "commit", "-qam", "further")
    git(inner, "config", "diff.external", str(act))
    git(repository, "config", "diff.submodule", "diff")
    git(repository, "config", "status.submoduleSummary", "true")


def setting(name: str):
    def apply(repository: Path, act: Path) -> None:
        git(repository, "config", name, f"{act}")

    apply.__name__ = name
    return apply


KINDS = [
    *(hooks, included, filter_with_an_odd_name, signature, missing_object, submodule),
    submodule_shown_whole,
    *map(setting, ("core.fsmonitor", "filter.f.clean", "filter.f.smudge", "filter.f.process")),
    *map(setting, ("diff.external", "diff.d.command", "diff.d.textconv", "core.pager")),
    *map(setting, ("pager.log", "pager.diff", "core.sshCommand", "core.editor", "core.askPass")),
    *map(setting, ("credential.helper", "merge.d.driver", "core.alternateRefsCommand")),
    *map(setting, ("alias.diff", "alias.rev-parse", "gpg.program", "hook.h.command")),
]


REFUSED = (missing_object, filter_with_an_odd_name)


@pytest.mark.parametrize("spoil", KINDS, ids=lambda kind: kind.__name__)
def test_asking_for_the_commit_of_a_folder_runs_nothing(
    tmp_path: Path, repository: Path, act: Path, spoil
) -> None:
    spoil(repository, act)
    found = commit_of(repository)
    assert not (tmp_path / "ran").exists()
    assert set(found) <= {"commit"}


@pytest.mark.parametrize("spoil", KINDS, ids=lambda kind: kind.__name__)
def test_bisect_makes_folders_without_running_what_the_configuration_names(
    tmp_path: Path, repository: Path, act: Path, spoil
) -> None:
    (repository / "model.py").write_text("x = 2\n")
    spoil(repository, act)
    (tmp_path / "ran").unlink(missing_ok=True)
    texts = []
    try:
        has_changes(repository)
        found = commits_between(repository, "HEAD~1", "HEAD")
        with checkouts(repository) as made:
            texts = [(made.folder(c) / "model.py").read_text() for c in found]
    except Exception as error:
        assert spoil in REFUSED, error
    assert not (tmp_path / "ran").exists()
    assert spoil in (*REFUSED, submodule, submodule_shown_whole) or texts == ["x = 1\n", "x = 2\n"]


def test_filters_of_the_users_own_configuration_run(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert " + changes " in commit_of(repository)["commit"]
    own = tmp_path / "own.gitconfig"
    own.write_text('[filter "f"]\n clean = tr 3 2\n smudge = cat\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    assert " + changes " not in commit_of(repository)["commit"]


def test_folder_that_only_looks_like_a_repository_is_none(tmp_path: Path, act: Path) -> None:
    bare = tmp_path / "archive" / "inner"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    git(bare, "config", "core.bare", "false")
    git(bare, "config", "core.worktree", str(tmp_path))
    git(bare, "config", "core.fsmonitor", str(act))
    assert commit_of(bare) == {}
    assert not (tmp_path / "ran").exists()
