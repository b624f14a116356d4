"""Studies and predictions made of what was kept are those made of the runs themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from analysis.runview import RunView
from analysis.studies import StudyTable, list_studies, run_study
from app import advice, kept, score
from core.config import DataDir
from db import fetch, readings
from db.connection import opened
from tests.app.conftest import with_decodes


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, example_captures: Path) -> DataDir:
    return with_decodes(tmp_path_factory.mktemp("kept"), example_captures)


@pytest.fixture
def db(data: DataDir) -> Iterator[Database]:
    with opened(data.db_path) as database:
        yield database


def run_ids(db: Database) -> list[str]:
    return [run_id for (run_id,) in db.execute("SELECT id FROM runs ORDER BY id")]


def bare(db: Database, data: DataDir, measures: tuple[str, ...]) -> list[RunView]:
    views = fetch.run_views(db, data, run_ids(db), leave_out=fetch.ALL_BUT_SAMPLES)
    kept.with_readings(db, data, views, measures, {})
    return views


def printed(found: StudyTable) -> tuple[str, ...]:
    return (found.frame.to_csv(), repr(found.pivots), repr(found.fits), repr(found.jobs))


@pytest.mark.parametrize("name", [s.name for s in list_studies() if not s.is_publication])
def test_a_study_of_kept_readings_is_that_of_the_whole_runs(
    db: Database, data: DataDir, name: str
) -> None:
    (study,) = (s for s in list_studies() if s.name == name)
    whole = fetch.run_views(db, data, run_ids(db))
    expected = printed(run_study(name, whole))
    bare(db, data, study.measures)  # works them out and keeps them
    given = bare(db, data, study.measures)
    assert all(view.kernels.empty for view in given)
    assert printed(run_study(name, given)) == expected


def test_kept_readings_are_not_read_from_the_runs_again(
    db: Database, data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare(db, data, ("latency", "gemm_fraction"))
    read: list[str] = []
    whole = fetch.run_views

    def counted(db: Database, data: DataDir, ids: list[str], **named: object) -> list[RunView]:
        if named.get("leave_out") == fetch.NOT_IN_A_STUDY:
            read.extend(ids)
        return whole(db, data, ids, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(fetch, "run_views", counted)
    bare(db, data, ("latency", "gemm_fraction"))
    assert read == []
    db.conn.execute(
        "UPDATE runs SET summary = json_set(summary, '$.x', 1) WHERE id = ?", run_ids(db)[:1]
    )
    bare(db, data, ("latency", "gemm_fraction"))
    assert read == run_ids(db)[:1]


def test_predictions_are_made_once_and_again_when_the_run_is_another(
    db: Database, data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = score.pair_outcomes(db, data)
    assert first
    asked: list[str] = []
    made_for = advice.made_for

    def counted(view: RunView, *rest: object) -> object:
        asked.append(view.run.id)
        return made_for(view, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("app.score.made_for", counted)
    assert score.pair_outcomes(db, data) == first
    assert asked == []
    db.conn.execute("UPDATE runs SET info = json_set(info, '$.x', 1)")
    assert score.pair_outcomes(db, data) == first
    assert sorted(asked) == run_ids(db)


def test_a_database_that_may_not_be_written_still_answers(
    db: Database, data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [view.worked_out for view in bare(db, data, ("latency",))]
    db.conn.execute("DELETE FROM readings")
    db.conn.commit()
    db.conn.execute("PRAGMA query_only=ON")
    assert [view.worked_out for view in bare(db, data, ("latency",))] == expected
    assert readings.kept(db, dict.fromkeys(run_ids(db), ""), ["latency"])
