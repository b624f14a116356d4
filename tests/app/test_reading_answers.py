"""Runs whose numbers are known are given as soon as their records are there."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from analysis import record_job
from analysis.rundata import AssembledRun
from analysis.transfer import StoredTable
from app.demo.answers import made
from app.reading import Answer, answered_job, asked_records, read_jobs
from tests.conftest import run_here

EXPORT = "decode_cuda_graph_whole.sqlite"
SURROUNDINGS: Mapping[str, Any] = {"rules": None, "peaks": {}, "salt": ""}


@pytest.fixture
def jobs(tmp_path: Path, example_captures: Path) -> list[dict[str, Any]]:
    """The same export twice, each in a folder of its own, whose answer is known."""
    entries = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        export = shutil.copy(example_captures / EXPORT, tmp_path / name)
        entries.append({"name": name, "files": [Path(export)]})
    return [
        answered_job(
            entry["files"],
            Answer(
                content_hash=sha256,
                records=asked_records(document),
                text=json.dumps(document).encode(),
            ),
        )
        for entry, sha256, document in made(entries)
    ]


def test_a_run_is_given_while_its_child_reads_the_next(
    jobs: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_taken, waited = Event(), []

    def first_alone(
        module: str, request: Mapping[str, Any], scratch: Path, *_: Any, **__: Any
    ) -> None:
        record_job.main({"jobs": request["jobs"][:1]}, scratch)
        waited.append(is_taken.wait(20))

    monkeypatch.setattr("app.reading.run_limited", first_alone)
    with read_jobs(jobs, SURROUNDINGS, tmp_path) as runs:
        first = next(runs)
        is_taken.set()
        monkeypatch.setattr("app.reading.run_limited", run_here)
        second = next(runs)  # of which the child wrote nothing: it is read alone
        assert next(runs, None) is None

        assert waited == [True]
        for run in (first, second):
            assert isinstance(run, AssembledRun)
            spans = run.captures[0].tables.spans
            assert isinstance(spans, StoredTable) and spans.path.is_file()


def test_a_child_that_nobody_waits_for_is_ended(
    jobs: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, ends = Event(), []

    def endless(*_: Any, is_cancelled: Any, **__: Any) -> None:
        has_begun.set()
        while not is_cancelled():
            Event().wait(0.01)
        ends.append(True)

    monkeypatch.setattr("app.reading.run_limited", endless)
    with pytest.raises(KeyboardInterrupt), read_jobs(jobs, SURROUNDINGS, tmp_path) as runs:
        monkeypatch.setattr("app.reading.wait", lambda *_, **__: _interrupt(has_begun))
        next(runs)

    assert ends == [True]


def _interrupt(has_begun: Event) -> None:
    has_begun.wait(20)
    raise KeyboardInterrupt
