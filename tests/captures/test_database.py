"""A foreign database and what lies beside it never act."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from analysis.capture_file import Staging, read_capture
from captures.database import open_immutable, recovered_copy, sidecars
from core.errors import CaptureError
from tests.analysis.readers.nsys_files import NSYS

MAGIC = bytes.fromhex("d9d505f920a163d7")


def journal_that_names(victim, page_bytes, num_pages):
    """Return a hot journal without pages whose super-journal is `victim`."""
    name = str(victim).encode()
    header = MAGIC + b"".join(n.to_bytes(4, "big") for n in (0, 7, num_pages, 512, page_bytes))
    record = (0).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    return header.ljust(512, b"\0") + record + sum(name).to_bytes(4, "big") + MAGIC


@pytest.fixture
def trap(tmp_path):
    """Give an export whose journal makes SQLite delete a file, and that file."""
    victim = tmp_path / "warpboard.db"
    victim.write_bytes(b"all runs of this team")
    path = tmp_path / "x.sqlite"
    shutil.copyfile(NSYS / "decode_eager.sqlite", path)
    page = int.from_bytes(path.read_bytes()[16:18], "big")
    journal = journal_that_names(victim, page, path.stat().st_size // page)
    (tmp_path / "x.sqlite-journal").write_bytes(journal)
    return path, victim


def test_the_trap_works_on_a_plain_open(trap):
    path, victim = trap
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    assert not victim.exists()


@pytest.mark.parametrize("keep_private", [False, True])
def test_an_import_refuses_a_journal_that_names_a_file_and_deletes_nothing(
    tmp_path, trap, keep_private
):
    path, victim = trap
    before = path.read_bytes()
    (tmp_path / "staged").mkdir()
    staging = Staging(folder=tmp_path / "staged", keep_private=keep_private)
    with pytest.raises(CaptureError, match="names another file"):
        read_capture(path, staging, "x.sqlite", kind=None, pass_name=None)
    assert victim.exists()
    assert path.read_bytes() == before
    assert list((tmp_path / "staged").iterdir()) == []


def test_an_immutable_open_leaves_journal_and_victim(trap):
    path, victim = trap
    with closing(open_immutable(path)) as conn:
        assert conn.execute("SELECT count(*) FROM StringIds").fetchone()[0] > 0
    assert victim.exists()
    assert [s.name for s in sidecars(path)] == ["x.sqlite-journal"]


def test_a_journal_without_that_record_is_replayed_on_the_copy_alone(tmp_path):
    path = tmp_path / "hot.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.executescript("CREATE TABLE t (n); INSERT INTO t VALUES (1)")
        conn.execute("PRAGMA cache_spill=1")
        conn.executescript("BEGIN; UPDATE t SET n = 2;")
        conn.execute("PRAGMA cache_size=1")
        conn.execute(
            "WITH r(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM r LIMIT 5000)"
            " INSERT INTO t SELECT randomblob(500) FROM r"
        )
        for end in ("", "-journal"):
            shutil.copyfile(f"{path}{end}", f"{tmp_path / 'crashed.sqlite'}{end}")
    crashed = tmp_path / "crashed.sqlite"
    before = crashed.read_bytes()
    (tmp_path / "scratch").mkdir()
    copy = recovered_copy(crashed, tmp_path / "scratch")
    with closing(open_immutable(copy)) as conn:
        assert conn.execute("SELECT n FROM t").fetchall() == [(1,)]
    assert crashed.read_bytes() == before
    assert (tmp_path / "crashed.sqlite-journal").exists()


def test_a_link_or_a_pipe_beside_a_database_is_not_its_journal(tmp_path):
    path = tmp_path / "x.sqlite"
    shutil.copyfile(NSYS / "decode_eager.sqlite", path)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "x.sqlite-wal").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "x.sqlite-journal")
    assert sidecars(path) == ()
