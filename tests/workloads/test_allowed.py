"""Own programs run where their operator allows, with words that a person writes."""

import os
import sys
from pathlib import Path

import pytest

from core.errors import UserError
from workloads.allowed import (
    COMMANDS,
    FOLDERS,
    MAX_WORD_CHARS,
    MAX_WORDS,
    allowed_folder,
    allowed_program,
)

PROGRAM = os.path.realpath(sys.executable)


def test_folder_is_beside_the_program_or_below_an_allowed_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "data" / "run", tmp_path / "other"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
    link = tmp_path / "data" / "link"
    link.symlink_to(outside)
    monkeypatch.setenv(FOLDERS, f"/nowhere:{tmp_path / 'data'}")

    assert allowed_folder("", PROGRAM) is None
    assert allowed_folder(str(inside), PROGRAM) == str(inside)
    assert allowed_folder(str(Path(PROGRAM).parent), PROGRAM) == str(Path(PROGRAM).parent)
    for folder in (outside, link, inside / ".." / ".." / "other", "/", "/etc"):
        with pytest.raises(UserError, match=FOLDERS):
            allowed_folder(str(folder), PROGRAM)


def test_folder_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDERS, str(tmp_path))
    with pytest.raises(UserError, match="not a directory"):
        allowed_folder(str(tmp_path / "gone"), PROGRAM)


@pytest.mark.parametrize("words", [["a"] * MAX_WORDS, ["x" * (MAX_WORD_CHARS + 1)], ["a\0b"]])
def test_words_are_bounded(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv(COMMANDS, f"{PROGRAM} *")
    assert allowed_program([PROGRAM, "-c", "pass"]) == PROGRAM
    with pytest.raises(UserError, match="argv"):
        allowed_program([PROGRAM, *words])
