"""Storing a run: one transaction, the same rows when done again, nothing when it fails."""

import json
from pathlib import Path

import pytest
from sqlite_utils import Database

from app.imports import Imported, import_paths
from core.config import DataDir
from db.fetch import run_view
from db.ingest import ingest_run
from tests.conftest import H100

SQLITE = H100 / "nsys" / "decode_eager.sqlite"
TABLES = ("captures", "kernels", "phases", "api_calls", "gaps", "metrics", "warnings")


def counts(db: Database) -> dict[str, int]:
    return {table: db.table(table).count for table in TABLES}


@pytest.fixture
def imported(data_dir: DataDir) -> Imported:
    return import_paths(data_dir, [SQLITE])


def test_same_file_again_is_the_same_run_and_changes_nothing(
    data_dir: DataDir, db: Database, imported: Imported
) -> None:
    before = counts(db), list(db.query("SELECT * FROM runs"))

    again = import_paths(data_dir, [SQLITE])

    assert (again.run_id, again.is_new) == (imported.run_id, False)
    assert (counts(db), list(db.query("SELECT * FROM runs"))) == before


def test_copy_under_another_name_is_the_same_run(
    data_dir: DataDir, imported: Imported, tmp_path: Path
) -> None:
    copy = tmp_path / "renamed.bin"
    copy.write_bytes(SQLITE.read_bytes())

    assert import_paths(data_dir, [copy]).run_id == imported.run_id


def test_name_and_params_given_again_replace_the_stored_ones(
    data_dir: DataDir, db: Database, imported: Imported
) -> None:
    import_paths(data_dir, [SQLITE], name="new", params={"workload": "decode", "batch": 1})

    run = run_view(db, data_dir, imported.run_id).run
    assert (run.name, run.workload, run.params) == ("new", "decode", {"batch": 1})
    assert run.comparable_hash is not None


def test_stored_file_is_read_back_with_the_same_hash(
    data_dir: DataDir, db: Database, imported: Imported
) -> None:
    from captures.contents import file_sha256

    row = run_view(db, data_dir, imported.run_id).captures.iloc[0]
    path = data_dir.captures / imported.run_id / row["file_name"]

    assert file_sha256(path) == row["sha256"]
    assert path.stat().st_size == row["bytes"]


def test_view_gives_back_what_the_reader_read(
    data_dir: DataDir, db: Database, imported: Imported
) -> None:
    from analysis.readers import read

    tables = read(SQLITE)
    view = run_view(db, data_dir, imported.run_id)

    assert view.primary_pass == "nsys"
    assert tables.kernels is not None
    assert int(view.kernels["total_ns"].sum()) == int(tables.kernels["total_ns"].sum())
    assert view.summary["kernel_time_ns"] == tables.summary["kernel_time_ns"]
    assert len(view.phases) == len(tables.phases)
    assert view.span_paths[0].exists()


def test_failed_write_leaves_the_old_run_whole(
    data_dir: DataDir, db: Database, imported: Imported, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = counts(db)
    run = _assembled(data_dir)
    monkeypatch.setattr("db.ingest._insert_run_rows", _fail)

    with pytest.raises(RuntimeError):
        ingest_run(db, data_dir, imported.run_id, run)

    assert counts(db) == before


def test_failed_import_leaves_neither_rows_nor_files(
    data_dir: DataDir, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.ingest._insert_run_rows", _fail)

    with pytest.raises(RuntimeError):
        import_paths(data_dir, [SQLITE])

    assert db.table("runs").count == 0
    folders = (data_dir.captures, data_dir.spans, data_dir.uploads)
    assert [list(f.iterdir()) for f in folders] == [[], [], []]


def test_several_files_make_one_run(data_dir: DataDir, db: Database) -> None:
    files = [SQLITE, H100 / "ncu" / "decode_eager.raw.csv"]

    found = import_paths(data_dir, files, name="both")

    view = run_view(db, data_dir, found.run_id)
    assert sorted(view.captures["pass"]) == ["ncu", "nsys"]
    assert (view.summary["num_kernels"], len(view.counters)) == (380, 38)
    assert import_paths(data_dir, files[::-1]).run_id == found.run_id


def test_summary_is_stored_as_json_without_unknown_keys(
    data_dir: DataDir, db: Database, imported: Imported
) -> None:
    summary = json.loads(db.execute("SELECT summary FROM runs").fetchone()[0])

    assert "latency_ms" not in summary
    assert None not in summary.values()


def _assembled(data_dir: DataDir):  # type: ignore[no-untyped-def]
    from analysis.assemble import assemble
    from analysis.bundle import load_files
    from analysis.capture_file import Staging

    folder = data_dir.uploads / "staged"
    folder.mkdir()
    return assemble(load_files([SQLITE], Staging(folder=folder)))


def _fail(*_: object) -> None:
    raise RuntimeError("disk full")
