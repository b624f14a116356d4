"""Files that are damaged, crafted or something else: one clear error, and never a write beside."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from analysis.capture_file import Staging, read_capture
from analysis.readers import detect
from analysis.readers.nsys.export import read_nsys_sqlite
from analysis.tables import CaptureKind
from captures import nsys_structure
from captures.nsys_database import _damage_as_capture_error, open_nsys
from core.errors import CaptureError
from tests.analysis.readers.nsys_files import NSYS, edited

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def error_of(path):
    with pytest.raises(CaptureError) as caught:
        read_nsys_sqlite(path)
    assert "\n" not in str(caught.value) and path.name in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS"),
        (b"NVIDIA Tegra Profiler Report 1.", ".nsys-rep"),
        (b"{}", "not a SQLite database"),
        (b"SQLite format 3\0", "cut off"),
        (b"SQLite format 3\0" + b"\x10\x00" + b"\xff" * 5000, "cut off"),
        (b"SQLite format 3\0" + b"\x10\x00" + b"\0" * 9000, "cannot read it"),
    ],
)
def test_other_content_is_named(tmp_path, content, says):
    path = tmp_path / "capture.sqlite"
    path.write_bytes(content)
    assert says in error_of(path)


def test_a_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    conn = sqlite3.connect(path)
    conn.execute('CREATE TABLE bookmarks (start, "end")')
    conn.commit()
    conn.close()
    assert "no table of Nsight Systems" in error_of(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_says_where_it_ends(tmp_path, share):
    data = (NSYS / "decode_eager.sqlite").read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(data[: int(len(data) * share)])
    assert "cut off" in error_of(path)


@pytest.mark.parametrize(
    ("page", "other"),
    [(82, 85), (82, 86), (88, 83), (85, 76), (76, 79), (75, 60), (85, 60), (85, 53), (85, 9)],
)
def test_a_page_overwritten_by_another_is_found(tmp_path, page, other):
    data = bytearray((NSYS / "decode_eager.sqlite").read_bytes())
    data[(page - 1) * 4096 : page * 4096] = data[(other - 1) * 4096 : other * 4096]
    path = tmp_path / "twice.sqlite"
    path.write_bytes(data)
    error_of(path)


def interior_page(data: bytes, table: str, path) -> tuple[int, int]:
    """Return the offset of a table's root page and the number of its cells."""
    with closing(sqlite3.connect(path)) as conn:
        (root,) = conn.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", [table]
        ).fetchone()
    page_size = int.from_bytes(data[16:18], "big")
    start = (root - 1) * page_size
    assert data[start] == 5  # an interior page of a table
    return start, int.from_bytes(data[start + 3 : start + 5], "big")


@pytest.mark.parametrize("damage", ["none", "a page twice", "a page lost", "a page of another"])
def test_a_large_table_is_checked_by_counting_its_rows(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(nsys_structure, "LARGE_FILE_BYTES", 0)
    monkeypatch.setattr(nsys_structure, "LARGE_TABLE_ROWS", 200)
    path = tmp_path / "capture.sqlite"
    shutil.copyfile(NSYS / "train_bf16.sqlite", path)
    data = bytearray(path.read_bytes())
    start, num_cells = interior_page(data, KERNELS, path)
    cells = [start + int.from_bytes(data[i : i + 2], "big") for i in (start + 12, start + 14)]
    if damage == "a page twice":
        data[cells[1] : cells[1] + 4] = data[cells[0] : cells[0] + 4]
    elif damage == "a page lost":
        data[start + 3 : start + 5] = (num_cells - 1).to_bytes(2, "big")
    elif damage == "a page of another":
        other, _ = interior_page(data, "CUPTI_ACTIVITY_KIND_RUNTIME", path)
        place = other + int.from_bytes(data[other + 12 : other + 14], "big")
        data[cells[1] : cells[1] + 4] = data[place : place + 4]
    path.write_bytes(data)
    if damage == "none":
        assert read_nsys_sqlite(path).summary["num_kernels"] > 200
        with closing(sqlite3.connect(path)) as conn:
            one_by_one = nsys_structure.tables_to_check(conn)
        assert '"ANALYSIS_DETAILS"' in one_by_one and f'"{KERNELS}"' not in one_by_one
    else:
        assert "damaged" in error_of(path)


@pytest.mark.parametrize(
    "statements",
    [
        [
            f"ALTER TABLE {KERNELS} RENAME TO hidden",
            f"CREATE VIEW {KERNELS} AS SELECT * FROM hidden, hidden AS h2, hidden AS h3",
        ],
        [f"CREATE TRIGGER t AFTER DELETE ON {KERNELS} BEGIN DELETE FROM StringIds; END"],
        [f"DROP TABLE {KERNELS}", f"CREATE VIRTUAL TABLE {KERNELS} USING fts4(start)"],
    ],
    ids=["view", "trigger", "virtual table"],
)
def test_what_could_run_sql_of_the_file_is_refused(tmp_path, statements):
    message = error_of(edited("decode_eager.sqlite", tmp_path, statements))
    assert "plain" in message


def test_a_generated_column_does_not_count_as_recorded(tmp_path):
    statements = [
        f"ALTER TABLE {KERNELS} RENAME COLUMN registersPerThread TO old",
        f"ALTER TABLE {KERNELS} ADD COLUMN registersPerThread AS (start * 2)",
    ]
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, statements))
    assert tables.kernels["registers"].isna().all()


def in_wal_mode(folder):
    """Return a copy whose last change, 380 more kernels, is only in its WAL; without -shm."""
    made = folder / "made.sqlite"
    shutil.copyfile(NSYS / "decode_eager.sqlite", made)
    conn = sqlite3.connect(made)
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute(f"INSERT INTO {KERNELS} SELECT * FROM {KERNELS}")
    conn.commit()
    target = folder / "upload" / "wal.sqlite"
    target.parent.mkdir()
    shutil.copyfile(made, target)
    shutil.copyfile(f"{made}-wal", f"{target}-wal")
    conn.close()
    return target


def test_a_wal_without_shm_is_read_and_nothing_is_written_beside(tmp_path):
    path = in_wal_mode(tmp_path)
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    assert read_nsys_sqlite(path).summary["num_kernels"] == 760
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


@pytest.mark.parametrize("keep_private", [False, True])
def test_an_import_keeps_what_lies_in_the_wal_and_writes_nothing_beside(tmp_path, keep_private):
    path = in_wal_mode(tmp_path)
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    staging = Staging(folder=tmp_path / "staged", keep_private=keep_private)
    staging.folder.mkdir()
    stored = read_capture(path, staging, "stored.sqlite", kind=None, pass_name=None)
    assert stored.tables.summary["num_kernels"] == 760
    assert read_nsys_sqlite(stored.path).summary["num_kernels"] == 760
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before
    os.unlink(f"{path}-wal")
    assert detect(path) is CaptureKind.NSYS_SQLITE
    assert [p.name for p in path.parent.iterdir()] == ["wal.sqlite"]
    alone = read_capture(path, staging, "alone.sqlite", kind=None, pass_name=None)
    assert alone.source_sha256 != stored.source_sha256


def test_a_wal_database_without_its_wal_is_read_as_it_is(tmp_path):
    path = in_wal_mode(tmp_path)
    os.unlink(f"{path}-wal")
    assert read_nsys_sqlite(path).summary["num_kernels"] == 380
    assert [p.name for p in path.parent.iterdir()] == ["wal.sqlite"]


def test_a_read_only_folder_is_enough(tmp_path):
    folder = tmp_path / "storage"
    folder.mkdir()
    path = folder / "odd name?#%.sqlite"
    shutil.copyfile(NSYS / "decode_eager.sqlite", path)
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert read_nsys_sqlite(path).summary["num_kernels"] == 380
    finally:
        folder.chmod(0o755)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = edited("decode_eager.sqlite", tmp_path, [])
    with pytest.raises(CaptureError, match="changed while"), open_nsys(path):
        os.utime(path, (1, 1))


def test_a_full_disk_is_not_called_damage_of_the_file(tmp_path):
    copy = sqlite3.connect(":memory:")
    copy.execute("PRAGMA max_page_count=2")

    with pytest.raises(OSError, match="No space left"), _damage_as_capture_error(tmp_path):
        copy.execute("CREATE TABLE t AS SELECT randomblob(100000)")
