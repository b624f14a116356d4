"""Which commit made it slower: the search, the folders of commits, and the whole command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from app.bisect.commits import Commit, checkouts, commits_between
from app.bisect.measure import BuildError, MeasureError
from app.bisect.search import Found, Search
from core.errors import UserError
from tests.app.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (
    "import os\nnoise = int.from_bytes(os.urandom(2)) / 65536\nprint('ms:', {} + 0.05 * noise)\n"
)


def commits(count: int) -> list[Commit]:
    return [Commit(sha=f"{i:040x}", subject=f"change {i}") for i in range(count)]


def search(levels: list[float], broken: tuple[int, ...] = (), **options: object) -> Found:
    """Search commits of these levels under 1 % noise; the broken ones fail."""
    made = commits(len(levels))
    rng = np.random.default_rng(5)

    def run(commit: Commit) -> np.ndarray:
        place = made.index(commit)
        if place in broken:
            raise MeasureError("does not build")
        return levels[place] * np.exp(rng.normal(0.0, 0.01, 8)) * np.exp(rng.normal(0.0, 0.01))

    return Search(commits=made, run=run, **options).find()  # type: ignore[arg-type]


@pytest.mark.parametrize("first_slow", [1, 4, 9, 15])
def test_the_first_slow_commit_is_named(first_slow: int) -> None:
    found = search([10.0] * first_slow + [11.0] * (16 - first_slow))

    assert found.outcome == "found"
    assert [c.subject for c in found.candidates] == [f"change {first_slow}"]
    assert found.ends.verdict == "slower" and len(found.tested) <= 4


def test_a_speed_up_is_found_as_well() -> None:
    found = search([10.0] * 3 + [8.0] * 5)

    assert (found.outcome, found.ends.verdict) == ("found", "faster")
    assert found.candidates[0].subject == "change 3"


def test_of_two_changes_the_larger_one_is_named() -> None:
    found = search([10.0, 10.0, 10.4, 10.4, 10.4, 12.0, 12.0, 12.0])

    assert found.candidates[0].subject == "change 5"
    assert any("of the change" in tested.reason for tested in found.tested)


def test_equal_ends_are_no_difference_and_nothing_between_is_run() -> None:
    found = search([10.0] * 6)

    assert found.outcome in ("no_difference", "undecided") and found.tested == ()


def test_commits_that_do_not_build_are_skipped() -> None:
    found = search([10.0] * 6 + [12.0] * 6, broken=(5, 3))

    assert found.outcome == "undecided"
    assert [c.subject for c in found.candidates] == ["change 5", "change 6"]
    assert {t.answer for t in found.tested} >= {"skipped"}


def test_an_end_that_fails_ends_the_search_with_its_name() -> None:
    with pytest.raises(MeasureError, match=r"change 0.*does not build"):
        search([10.0] * 3, broken=(0,))


def test_a_program_that_fails_now_and_then_is_run_again_and_the_commit_named() -> None:
    made, rng, told = commits(12), np.random.default_rng(8), []

    def run(commit: Commit) -> np.ndarray:
        if rng.random() < 0.2:
            raise MeasureError("failed with exit code 3")
        level = 10.0 if made.index(commit) < 7 else 12.0
        return level * np.exp(rng.normal(0.0, 0.01, 8))

    found = Search(commits=made, run=run, tell=told.append).find()

    assert [c.subject for c in found.candidates] == ["change 7"]
    assert any("is run again: failed with exit code 3" in text for text in told)


def test_what_does_not_build_is_not_tried_again() -> None:
    tried: list[str] = []

    def run(commit: Commit) -> np.ndarray:
        tried.append(commit.subject)
        raise BuildError("does not build")

    with pytest.raises(MeasureError, match="change 0"):
        Search(commits=commits(3), run=run).find()

    assert tried == ["change 0"]


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Six commits; the fourth makes the program 20 % slower, the fifth does not run."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    texts = [PROGRAM.format(level) for level in (10, 10, 10, 12)]
    for number, text in enumerate([*texts, "raise SystemExit('broken')\n", texts[3]]):
        (folder / "run.py").write_text(f"# {number}\n{text}")
        git(folder, "add", "run.py")
        git(folder, "commit", "-q", "-m", f"change {number}")
    return folder


def state_of(repository: Path) -> tuple[str, str, list[str]]:
    inside = sorted(
        str(p.relative_to(repository)) for p in (repository / ".git").rglob("worktrees/*")
    )
    return git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD"), inside


def test_folders_of_commits_hold_their_files_and_go_away(repository: Path) -> None:
    before = state_of(repository)
    line = commits_between(repository, "HEAD~5", "HEAD")

    with checkouts(repository) as made:
        folder = made.folder(line[3])
        assert "12" in (folder / "run.py").read_text()
        scratch = made.scratch

    assert not scratch.exists() and state_of(repository) == before


def test_no_hook_of_the_repository_runs(repository: Path, tmp_path: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)

    with checkouts(repository) as made:
        made.folder(commits_between(repository, "HEAD~1", "HEAD")[0])

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ("HEAD", "HEAD~2", "is not before"),
        ("HEAD", "HEAD", "the same commit"),
        ("nothing", "HEAD", "nothing"),
        ("--output=x", "HEAD", "is not a commit"),
        ("^HEAD", "HEAD", "is not a commit"),
        ("HEAD:run.py", "HEAD", "is not a commit"),
    ],
)
def test_ends_that_make_no_line_are_refused(
    repository: Path, good: str, bad: str, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        commits_between(repository, good, bad)


def test_the_command_names_the_commit_and_leaves_the_repository_as_it_was(
    cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    before = state_of(repository)

    words = ("--metric", "ms: ([0-9.]+)", "--repeats", "4", "--json")
    code = cli("bisect", "HEAD~5", "HEAD", *words, "--", sys.executable, "run.py")

    found = json.loads(cli.out)
    assert code == 0 and found["commit"]["subject"] == "change 3"
    assert found["verdict"] == "slower" and found["ratio"] == pytest.approx(1.2, abs=0.02)
    assert state_of(repository) == before
    assert "not committed" not in cli.err


def test_changes_that_are_not_committed_are_left_out_and_that_is_said(
    cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    (repository / "run.py").write_text(PROGRAM.format(50))

    words = ("--metric", "ms: ([0-9.]+)", "--repeats", "4", "--json")
    assert cli("bisect", "HEAD~3", "HEAD", *words, "--", sys.executable, "run.py") == 0

    assert json.loads(cli.out)["ratio"] == pytest.approx(1.2, abs=0.02)
    assert "not committed are in none of them" in cli.err


def test_a_merge_that_made_it_slower_is_named_with_the_line_it_brought_in(
    cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch, base = (git(repository, "rev-parse", f"HEAD~{n}").strip() for n in (2, 3))
    git(repository, "checkout", "-q", "-b", "line", base)
    inner = repository / "a folder"
    inner.mkdir()
    (inner / "other.txt").write_text("1")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "beside")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge it", branch)
    monkeypatch.chdir(inner)

    words = ("--metric", "ms: ([0-9.]+)", "--repeats", "4")
    assert cli("bisect", "HEAD~1", "HEAD", *words, "--", sys.executable, "../run.py") == 0

    assert "merge it" in cli.out
    assert f"bisect {base[:10]} {branch[:10]}" in cli.out


def test_without_a_program_or_repository_one_line_says_so(
    cli: Cli, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    assert cli("bisect", "HEAD~1", "HEAD") == 2 and "put it after `--`" in cli.err
    monkeypatch.chdir(tmp_path)
    assert cli("bisect", "HEAD~1", "HEAD", "--", "true") == 2 and "git rev-parse" in cli.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_leaves_no_folder_no_entry_and_no_process(
    repository: Path, tmp_path: Path, number: int
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = state_of(repository)
    script = f"import os, time; open('{tmp_path}/pid', 'w').write(str(os.getpid())); time.sleep(60)"
    command = [sys.executable, "-m", "app.cli", "bisect", "HEAD~5", "HEAD", "--time", "process"]
    child = subprocess.Popen(
        [*command, "--", sys.executable, "-c", script],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.05)

    child.send_signal(number)

    assert child.wait(timeout=30) == 130
    assert list(scratch.iterdir()) == [] and state_of(repository) == before
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
