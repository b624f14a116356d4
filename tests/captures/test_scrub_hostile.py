"""What a file of somebody else defines never comes along and never runs."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from analysis.readers.nsys.export import read_nsys_sqlite
from captures.scrub.nsys import scrub_nsys_sqlite
from core.errors import CaptureError
from tests.analysis.readers.nsys_files import NSYS, edited

EXPORTS = sorted(NSYS.glob("*.sqlite"))


def schema(path):
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as conn:
        return conn.execute("SELECT type, name, sql FROM sqlite_master").fetchall()


HOSTILE = {
    "trigger": [
        "CREATE TRIGGER t BEFORE INSERT ON ThreadNames BEGIN SELECT raise(ABORT, 'ran'); END",
        "CREATE TRIGGER d BEFORE DELETE ON ThreadNames BEGIN DELETE FROM StringIds; END",
    ],
    "view": ["CREATE VIEW junk_view AS SELECT randomblob(100000000)"],
    "index expression": ["CREATE INDEX i ON StringIds (length(value) / 2)"],
    "table name with SQL in it": [
        'CREATE TABLE "t"", (SELECT value FROM StringIds) AS ""z" (nameId INTEGER)',
    ],
    "generated column": [
        "ALTER TABLE ThreadNames ADD COLUMN name TEXT AS (replace(priority, '', 'ran'))"
    ],
    "check": ["CREATE TABLE MPI_RANKS (rank INTEGER CHECK (rank > random()))"],
    "virtual table": ["CREATE VIRTUAL TABLE junk USING fts5(a)"],
    "table of another's": ["CREATE TABLE custom (b BLOB)", "INSERT INTO custom VALUES ('secret')"],
    "column of another's": [
        "ALTER TABLE ANALYSIS_DETAILS ADD COLUMN mine TEXT",
        "UPDATE ANALYSIS_DETAILS SET mine = 'secret'",
    ],
}


@pytest.mark.parametrize("statements", HOSTILE.values(), ids=HOSTILE)
def test_a_copy_has_our_schema_alone_whatever_the_file_defines(tmp_path, statements):
    path = edited("decode_eager.sqlite", tmp_path, statements)
    try:
        scrub_nsys_sqlite(path, tmp_path / "copy.sqlite")
    except CaptureError:
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
        return
    kinds = {kind for kind, _, _ in schema(tmp_path / "copy.sqlite")}
    data = (tmp_path / "copy.sqlite").read_bytes()
    assert kinds == {"table"}
    assert b"secret" not in data and b"ran" not in data.replace(b"range", b"")[:4096]
    before, after = read_nsys_sqlite(path), read_nsys_sqlite(tmp_path / "copy.sqlite")
    assert dict(before.summary) == dict(after.summary)


@pytest.mark.parametrize(
    "statements",
    [
        [
            "ALTER TABLE ThreadNames RENAME TO t2",
            "CREATE VIEW TARGET_INFO_CUDA_X AS SELECT 1 AS id",
        ],
        ["CREATE VIRTUAL TABLE NVTX_X USING fts5(a)"],
        ["CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN SELECT 1; END"],
    ],
    ids=["view", "virtual table", "trigger"],
)
def test_what_only_looks_like_a_table_of_nsys_is_refused(tmp_path, statements):
    path = edited("decode_eager.sqlite", tmp_path, statements)
    with pytest.raises(CaptureError, match=r"view|virtual|trigger"):
        scrub_nsys_sqlite(path, tmp_path / "copy.sqlite")


@pytest.mark.parametrize("source", EXPORTS, ids=lambda p: p.stem)
def test_every_real_export_reads_the_same_after_scrubbing(tmp_path, source):
    scrub_nsys_sqlite(source, tmp_path / "copy.sqlite")
    before, after = read_nsys_sqlite(source), read_nsys_sqlite(tmp_path / "copy.sqlite")
    assert dict(after.summary) == dict(before.summary)
    for name in ("kernels", "phases", "spans", "api_calls", "transfers", "memory_points"):
        old, new = getattr(before, name), getattr(after, name)
        assert old is new is None or new.equals(old), name
    assert [w.code for w in after.warnings] == [w.code for w in before.warnings]


def test_a_tree_of_pages_that_repeats_itself_ends(tmp_path):
    """An interior page whose cells all name one leaf gives its rows again and again."""
    path = tmp_path / "loop.sqlite"
    shutil.copyfile(NSYS / "decode_eager.sqlite", path)
    with closing(sqlite3.connect(path)) as conn:
        (root,) = conn.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'"
        ).fetchone()
        (size,) = conn.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    at = (root - 1) * size
    assert data[at] == 5, "an interior page was expected"
    child = bytes(data[at + 8 : at + 12])
    for cell in range(int.from_bytes(data[at + 3 : at + 5], "big")):
        pointer = at + int.from_bytes(data[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
        data[pointer : pointer + 4] = child
    path.write_bytes(data)
    with pytest.raises(CaptureError):
        scrub_nsys_sqlite(path, tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()


@pytest.mark.parametrize("cast", ["TEXT", "BLOB"])
def test_texts_that_are_not_utf8_are_read_and_cleaned(tmp_path, cast):
    """NVTX takes any bytes of a program: Latin-1 in a range's name is not damage."""
    planted = b"caf\xe9 of /home/alicesecret/x"
    statements = [
        f"UPDATE StringIds SET value = CAST(x'{planted.hex()}' AS {cast}) WHERE rowid % 2",
        f"UPDATE NVTX_EVENTS SET text = CAST(x'{planted.hex()}' AS {cast})",
        f"UPDATE TARGET_INFO_GPU SET name = CAST(x'{planted.hex()}' AS {cast})",
        f"INSERT INTO META_DATA_CAPTURE VALUES (CAST(x'{planted.hex()}' AS {cast}), 'x')",
        f"INSERT INTO META_DATA_CAPTURE VALUES ('HOSTNAME', CAST(x'{planted.hex()}' AS {cast}))",
    ]
    source = edited("decode_eager.sqlite", tmp_path, statements)
    copy = tmp_path / "copy.sqlite"
    scrub_nsys_sqlite(source, copy)
    assert b"alicesecret" not in copy.read_bytes()
    assert "caf\ufffd of ".encode() in copy.read_bytes()
    assert read_nsys_sqlite(copy).summary["num_kernels"] > 0
