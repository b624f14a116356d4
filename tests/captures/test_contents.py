"""Which files are read from a copy, because others could put another in their place; hashes."""

import os
from pathlib import Path

import pytest

from captures import contents
from captures.contents import (
    content_hash,
    copy_plain,
    file_sha256,
    known_hashes,
    others_may_swap,
    state,
)
from core.errors import CaptureError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "above" / "in" / "trace.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return path


@pytest.mark.parametrize(
    ("mode", "may"), [(0o755, False), (0o777, True), (0o775, True), (0o1777, False), (0o700, False)]
)
def test_a_folder_above_that_others_may_write_to_lets_them_swap_what_is_in_it(
    path: Path, mode: int, may: bool
) -> None:
    path.parent.parent.chmod(mode)

    assert others_may_swap(path) is may
    assert others_may_swap(path.parent) is may


def test_the_folder_that_is_given_counts_too(path: Path) -> None:
    path.parent.chmod(0o777)

    assert others_may_swap(path.parent)


def test_a_link_is_swapped_where_it_lies_or_where_it_leads(path: Path, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "link").symlink_to(path)
    assert not others_may_swap(beside / "link")
    assert others_may_swap(beside), "a link in a folder leads wherever its maker wants"

    path.parent.chmod(0o777)
    assert others_may_swap(beside / "link")

    path.parent.chmod(0o755)
    beside.chmod(0o777)
    assert others_may_swap(beside / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_the_folder_of_another_user_is_theirs_to_swap(path: Path) -> None:
    os.chown(path.parent, 4321, 4321)

    assert others_may_swap(path)


def test_a_pipe_is_not_copied(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(CaptureError, match="not a regular file"):
        copy_plain(tmp_path / "pipe", tmp_path / "copy")


def test_a_file_is_hashed_once_in_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"one")
    hashed: list[Path] = []
    monkeypatch.setattr(contents, "content_sha256", lambda p: _noted(hashed, p))

    first = content_hash([path])
    ((seen, sha256),) = known_hashes([path, tmp_path, tmp_path / "gone"]).values()
    assert (hashed, sha256) == ([path], file_sha256(path))
    assert seen == state(path, with_links=True)
    path.write_bytes(b"two")

    assert content_hash([path]) != first
    assert len(hashed) == 2


def _noted(hashed: list[Path], path: Path) -> str:
    hashed.append(path)
    return file_sha256(path)
