"""Private facts leave a capture; its numbers stay."""

import gzip
import json
import pickle
import shutil
import sqlite3
from pathlib import Path

import pytest

from worker.profilers.memory import scrub_snapshot
from worker.scrub import Scrubber, scrub_json_gz, scrub_ncu_csv, scrub_nsys_sqlite

DATA = Path(__file__).parents[1] / "data" / "h100"
SECRETS = ("gpu-box-17", "alice", "hunter2", "/home/alice/model.py")
MEASUREMENTS = {
    "kernels": 'SELECT COUNT(*), SUM("end" - start), MIN(demangledName) FROM '
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "names": "SELECT DISTINCT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
    "ON s.id = k.demangledName ORDER BY 1",
    "ranges": 'SELECT text, start, "end" FROM NVTX_EVENTS ORDER BY start',
    "gpu": "SELECT name, smCount, computeMajor FROM TARGET_INFO_GPU",
    "calls": "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "export": "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'",
    "graph mode": "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%GRAPH_TRACE%'",
    "driver": "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'NvDriverVersion'",
}


def measurements(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(path) as db:
        return {name: db.execute(sql).fetchall() for name, sql in MEASUREMENTS.items()}


@pytest.fixture
def capture_with_secrets(tmp_path: Path) -> Path:
    """A real export with the private rows that nsys writes put back into their places."""
    path = tmp_path / "nsys.sqlite"
    shutil.copyfile(DATA / "nsys" / "decode_eager.sqlite", path)
    db = sqlite3.connect(path)
    with db:
        db.executemany(
            "INSERT INTO META_DATA_CAPTURE VALUES (?, ?)",
            [
                ("PROCESS_0:ENVIRONMENT_VARIABLE", "API_KEY=hunter2"),
                ("HOST_NAME", "gpu-box-17"),
                ("USER_NAME", "alice"),
                ("PROCESS_0:EXECUTABLE_PATH", "/home/alice/model.py"),
                ("SOME_NEW_KEY", "started by alice on gpu-box-17"),
            ],
        )
        db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_OUTPUT', '/home/alice/model.py')")
        db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'x', 'Env', 1, 'K=hunter2')")
        db.execute("INSERT INTO PROCESSES VALUES (1, 1, 'alice-editor')")
        db.execute("INSERT INTO StringIds VALUES (99999, '/home/alice/model.py')")
        db.execute("INSERT INTO StringIds VALUES (99998, 'LANG=C' || char(0) || 'KEY=hunter2')")
        db.execute("INSERT INTO ProcessStreams VALUES (1, 99999, 99999)")
        db.execute("UPDATE DIAGNOSTIC_EVENT SET text = 'cannot read /home/alice/model.py'")
    db.close()
    return path


def test_nothing_private_is_left_in_any_byte_of_an_export(capture_with_secrets: Path) -> None:
    removed = scrub_nsys_sqlite(capture_with_secrets, Scrubber(("gpu-box-17", "alice")))
    data = capture_with_secrets.read_bytes()
    assert [s for s in SECRETS if s.encode() in data] == []
    assert "environment" in removed


def test_every_number_of_an_export_stays(capture_with_secrets: Path) -> None:
    before = measurements(capture_with_secrets)
    scrub_nsys_sqlite(capture_with_secrets, Scrubber(("gpu-box-17", "alice")))
    assert measurements(capture_with_secrets) == before


@pytest.mark.parametrize("capture", sorted((DATA / "nsys").glob("*.sqlite")), ids=lambda p: p.stem)
def test_every_real_export_can_be_scrubbed(capture: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    shutil.copyfile(capture, copy)
    scrub_nsys_sqlite(copy)
    with sqlite3.connect(copy) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_ncu_page_loses_the_host_column_alone(tmp_path: Path) -> None:
    source = DATA / "ncu" / "decode_max_autotune.raw.csv"
    scrub_ncu_csv(source, tmp_path / "out.csv.gz", Scrubber(()))
    import csv

    with (
        open(source, newline="") as file,
        gzip.open(tmp_path / "out.csv.gz", "rt", newline="") as out,
    ):
        before, after = list(csv.reader(file)), list(csv.reader(out))
    column = before[0].index("Host Name")
    assert after == [row[:column] + row[column + 1 :] for row in before if row]


def test_trace_keeps_its_events(tmp_path: Path) -> None:
    source = DATA / "kineto" / "train_bf16.json.gz"
    scrub_json_gz(source, tmp_path / "out.json.gz")
    with gzip.open(source) as before, gzip.open(tmp_path / "out.json.gz") as after:
        old, new = json.load(before), json.load(after)
    assert len(new["traceEvents"]) == len(old["traceEvents"])
    assert [e.get("dur") for e in new["traceEvents"]] == [e.get("dur") for e in old["traceEvents"]]


def test_snapshot_keeps_its_events_and_loses_folders(tmp_path: Path) -> None:
    source = DATA / "memory" / "train_fp32.pickle"
    with open(source, "rb") as file:
        old = pickle.load(file)
    frame = {"filename": "/home/alice/model.py", "name": "step", "line": 3}
    old["device_traces"][0][0]["frames"] = [frame]
    private = tmp_path / "private.pickle"
    private.write_bytes(pickle.dumps(old))
    scrub_snapshot(private, tmp_path / "out.pickle")
    data = (tmp_path / "out.pickle").read_bytes()
    new = pickle.loads(data)
    assert b"/home/alice" not in data
    assert new["device_traces"][0][0]["frames"][0]["filename"] == "model.py"
    assert [e["size"] for t in new["device_traces"] for e in t] == [
        e["size"] for t in old["device_traces"] for e in t
    ]


def test_snapshot_that_names_code_is_not_loaded(tmp_path: Path) -> None:
    source = tmp_path / "bad.pickle"
    source.write_bytes(pickle.dumps({"segments": [Path("x")]}))
    with pytest.raises(pickle.UnpicklingError):
        scrub_snapshot(source, tmp_path / "out.pickle")


def test_words_are_removed_whole_only() -> None:
    scrub = Scrubber(("node",))
    assert (
        scrub.text("on node: graph_node /srv/x/y") == "on (name removed): graph_node (path removed)"
    )
    assert (
        scrub.text("operator/(float) a/b at::native::x<1>")
        == "operator/(float) a/b at::native::x<1>"
    )
