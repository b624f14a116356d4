"""The answer of a process that read foreign files: what it may have been made to say is checked."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.assemble import assemble
from analysis.bundle import load_paths
from analysis.capture_file import Staging
from analysis.transfer import RUN, read_document, read_run, write_run
from tests.conftest import H100


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    folder = tmp_path / "in" / "answer"
    folder.mkdir(parents=True)
    source = H100 / "nsys" / "decode_eager.sqlite"
    write_run(assemble(load_paths([source], Staging(folder=folder))), folder)
    return folder


def _changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads((folder / RUN).read_text())
    change(document["captures"][0])
    (folder / RUN).write_text(json.dumps(document))


def test_an_answer_is_read_as_it_was_written(answer: Path) -> None:
    (capture,) = read_run(answer).captures

    assert capture.file_name == "decode_eager.sqlite"
    assert capture.path.read_bytes()[:6] == b"SQLite"


@pytest.mark.parametrize(
    "name", ["../../evil", "/tmp/evil", "a/b", "..", ".", "", ".hidden", "a\\b", "x\ny", "x" * 300]
)
def test_a_name_that_leads_out_of_where_captures_are_kept_is_refused(
    answer: Path, name: str
) -> None:
    _changed(answer, lambda capture: capture.update(file_name=name))

    with pytest.raises(ValueError, match="no name of a file"):
        read_run(answer)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "outside"])
def test_what_is_no_file_of_the_answer_is_not_taken(answer: Path, kind: str) -> None:
    (answer.parent / "secret").write_text("token")
    path = answer / "other"
    if kind == "link":
        path.symlink_to(answer.parent / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    named = "../secret" if kind == "outside" else "other"
    _changed(answer, lambda capture: capture.update(path=named))

    with pytest.raises(ValueError, match=r"outside the folder|is no file"):
        read_run(answer)


@pytest.mark.parametrize("kind", ["pipe", "link", "list", "deep", "device"])
def test_a_document_that_is_none_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "error.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind in ("link", "device"):
        path.symlink_to("/dev/zero" if kind == "device" else "/etc/passwd")
    else:
        path.write_text("[]" if kind == "list" else '{"a":' + "[" * 100_000)

    with pytest.raises((ValueError, OSError)):
        read_document(path)
