"""Small files that made readers slow or large: the time they take grows with their size alone."""

import gzip
import json
import pickle
import time
from dataclasses import fields

import pytest

from analysis import read_job
from analysis.readers import detect, read
from app.imports import import_paths
from app.reading import file_job, read_one
from captures.pickle_data import PickleRefusedError, load_data
from core.errors import CaptureError
from db.connection import opened
from tests.conftest import SMALL_TRACE

MODULUS = (1 << 61) - 1


@pytest.fixture
def clock():
    """Fail a test whose processor time passes 4 s."""
    started = time.process_time()
    yield
    assert time.process_time() - started < 4


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_dictionary_of_colliding_numbers_is_refused(protocol):
    data = pickle.dumps({"x": {MODULUS * n: None for n in range(1, 5000)}}, protocol)
    with pytest.raises(PickleRefusedError, match="the same hash"):
        load_data(data)


def test_addresses_and_large_numbers_load():
    value = {"addresses": [0x7F0000000000 + n for n in range(5000)], "large": [2**63 + 1, -(2**70)]}
    assert load_data(pickle.dumps(value)) == value


@pytest.mark.usefixtures("clock")
def test_segments_that_share_their_blocks_do_not_multiply(tmp_path):
    blocks = [{"size": 512, "state": "active_allocated", "address": n} for n in range(3000)]
    segment = {"device": 0, "address": 0, "total_size": 1, "blocks": blocks}
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [dict(segment) for _ in range(3000)]}))
    with pytest.raises(CaptureError, match="more events than it has bytes"):
        read(path)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "text",
    [
        "Source " * 8000,
        "==PROF== process " * 4000,
        "Processing [" * 5000,
        "** (a:" * 9000,
        '"' * 60000,
    ],
    ids=["source page", "process lines", "processing", "titles", "quotes"],
)
def test_a_line_of_one_word_again_and_again_is_looked_at_once(tmp_path, text):
    path = tmp_path / "x.txt"
    path.write_text(text)
    try:
        detect(path)
    except CaptureError as exc:
        assert exc.where


@pytest.mark.usefixtures("clock")
def test_packed_data_that_grows_a_thousandfold_is_refused(tmp_path):
    path = tmp_path / "bomb.pickle.gz"
    path.write_bytes(gzip.compress(b"\x80\x04]\x94" + b"]\x94" * (60 << 20) + b"."))
    with pytest.raises(CaptureError):
        read(path)


def test_a_capture_of_more_rows_than_are_kept_is_refused(data_dir, monkeypatch):
    monkeypatch.setattr(read_job, "MAX_ROWS", 3)
    with (
        opened(data_dir.ensure().db_path) as db,
        pytest.raises(CaptureError, match="more than the 3 kept"),
        read_one(data_dir, db, file_job([SMALL_TRACE])),
    ):
        pass


def test_rows_that_are_kept_in_files_beside_the_database_are_not_counted(data_dir, monkeypatch):
    with (
        opened(data_dir.ensure().db_path) as db,
        read_one(data_dir, db, file_job([SMALL_TRACE])) as run,
    ):
        carried = _num_rows(run.captures[0].tables)
    in_database = max(n for name, n in carried.items() if name not in ("spans", "ranges", "host"))
    assert carried["host"] > in_database
    monkeypatch.setattr(read_job, "MAX_ROWS", in_database)
    with (
        opened(data_dir.db_path) as db,
        read_one(data_dir, db, file_job([SMALL_TRACE])) as again,
    ):
        assert again.captures[0].tables.host.num_rows == carried["host"]


def trace_of(folder, names, **args):
    event = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "dur": 1}
    event["args"] = {"device": 0, "stream": 7, **args}
    events = [{**event, "name": name, "ts": 2 * i} for i, name in enumerate(names)]
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_NAMES", 20, "21 different names in kernels, column name, more than the 20 kept"),
        ("MAX_TEXT_BYTES", 1000, r"\d{4} bytes of names and texts, more than the 1000 kept"),
        ("MAX_FACTS", 1, "entries of summary, more than the 1 kept"),
    ],
)
def test_a_capture_that_would_fill_the_database_with_names_is_refused(
    data_dir, tmp_path, monkeypatch, limit, value, message
):
    monkeypatch.setattr(read_job, limit, value)
    path = trace_of(tmp_path, [f"kernel_{i}_{'x' * 100}" for i in range(21)])
    with pytest.raises(CaptureError, match=message) as caught:
        import_paths(data_dir, [path])
    assert "Record a shorter capture" in caught.value.remedy
    with opened(data_dir.db_path) as db:
        for table in ("runs", "kernel_names", "kernels"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0


def test_a_name_of_a_megabyte_is_cut(data_dir, tmp_path):
    event = {"ph": "X", "cat": "kernel", "name": "k" * 10**6, "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event | {"args": {"device": 0, "stream": 7}}]}))
    with (
        opened(data_dir.ensure().db_path) as db,
        read_one(data_dir, db, file_job([path])) as run,
    ):
        (name,) = run.captures[0].tables.kernels["name"]
    assert len(name) < 10**5


def _num_rows(tables):
    """Return how many rows each table has."""
    found = {f.name: getattr(tables, f.name) for f in fields(tables)}
    tables_only = {
        n: t for n, t in found.items() if hasattr(t, "num_rows") or hasattr(t, "_columns")
    }
    return {n: getattr(t, "num_rows", None) or len(t) for n, t in tables_only.items()}
