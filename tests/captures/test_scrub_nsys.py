import pytest

from analysis.readers.nsys.export import read_nsys_sqlite
from captures.scrub.nsys import scrub_nsys_sqlite
from core.errors import CaptureError
from tests.analysis.readers.nsys_files import NSYS, edited

PRIVATE = [
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'KEY=hunter2')",
    "INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT_VARIABLE', 'USER=alicesmith')",
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:EXECUTABLE', '/home/alicesmith/bin/python')",
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENTS', 'train.py --token hunter2')",
    "UPDATE META_DATA_EXPORT SET value = 'gpu-node-77' WHERE name = 'EXPORT_HOST'",
    "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'gpu-node-77', 'Hostname', 1, 'gpu-node-77')",
    "INSERT INTO PROCESSES VALUES (1, 2, '/home/alicesmith/tool')",
    "INSERT INTO StringIds SELECT max(id) + 1, '/home/alicesmith/thread' FROM StringIds",
    "INSERT INTO NVTX_EVENTS (start, eventType, globalTid, text)"
    " VALUES (0, 34, 1, 'saved C:\\Users\\Alice Liddell\\run\\x.pt')",
    "UPDATE DIAGNOSTIC_EVENT SET text = 'lost /home/alicesmith/a.so on gpu-node-77'",
]
SECRETS = (b"alicesmith", b"hunter2", b"gpu-node", b"/home/", b"Liddell")


@pytest.fixture
def private(tmp_path):
    return edited("train_bf16.sqlite", tmp_path, PRIVATE)


def test_nothing_private_is_left_in_any_byte_of_the_copy(tmp_path, private):
    removed = scrub_nsys_sqlite(private, tmp_path / "clean.sqlite")
    data = (tmp_path / "clean.sqlite").read_bytes()
    assert [s for s in SECRETS if s in data] == []
    assert {"environment variables", "command line", "host", "process names"} <= set(removed)


def test_the_numbers_stay_the_same(tmp_path, private):
    scrub_nsys_sqlite(private, tmp_path / "clean.sqlite")
    before, after = read_nsys_sqlite(private), read_nsys_sqlite(tmp_path / "clean.sqlite")
    assert dict(after.summary) == dict(before.summary)
    assert after.kernels.equals(before.kernels) and after.phases.equals(before.phases)
    assert after.spans.equals(before.spans)
    assert dict(after.gpu) == {k: v for k, v in before.gpu.items() if k != "uuid"}
    assert dict(after.environment) == dict(before.environment)


def test_the_source_is_not_touched_and_no_leftover_stays(tmp_path, private):
    before = private.read_bytes()
    scrub_nsys_sqlite(private, tmp_path / "clean.sqlite")
    assert private.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["clean.sqlite", private.name]


def test_scrubbing_twice_finds_nothing_more(tmp_path, private):
    scrub_nsys_sqlite(private, tmp_path / "clean.sqlite")
    assert scrub_nsys_sqlite(tmp_path / "clean.sqlite", tmp_path / "again.sqlite") == ()


def test_a_damaged_source_leaves_no_copy(tmp_path):
    path = tmp_path / "cut.sqlite"
    path.write_bytes((NSYS / "decode_eager.sqlite").read_bytes()[:100_000])
    with pytest.raises(CaptureError, match="cut off"):
        scrub_nsys_sqlite(path, tmp_path / "clean.sqlite")
    assert [p.name for p in tmp_path.iterdir()] == ["cut.sqlite"]
