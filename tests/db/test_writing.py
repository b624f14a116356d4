"""Transactions that read before they write wait for another writer, and locks are kept."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from core.config import DataDir
from db.connection import connect, opened
from db.handover import hand_in
from db.queue import claim_run
from db.runs import insert_run


def test_transaction_that_reads_first_waits_for_another_writer(data_dir: DataDir) -> None:
    with opened(data_dir.db_path) as db:
        run_id = insert_run(db, spec=None, name="one")
        db.conn.execute("UPDATE runs SET spec = '{}' WHERE id = ?", [run_id])
        db.conn.commit()
        claim_run(db, run_id, worker_id="w", gpu_id=None, task_id=None)
    other = connect(data_dir.db_path)
    has_begun = threading.Event()

    def hold_the_lock() -> None:
        with other.atomic():
            other.conn.execute("UPDATE runs SET notes = 'x'")
            has_begun.set()
            time.sleep(0.3)

    writer = threading.Thread(target=hold_the_lock)
    writer.start()
    has_begun.wait()
    with opened(data_dir.db_path) as db:
        assert hand_in(db, run_id, 1) == "ingesting"
    writer.join()
    other.close()


def test_failed_block_leaves_nothing_and_no_lock(data_dir: DataDir) -> None:
    with opened(data_dir.db_path) as db:
        try:
            with db.atomic():
                insert_run(db, spec=None, name="half")
                raise KeyError
        except KeyError:
            pass
        assert not db.conn.in_transaction
        assert db.execute("SELECT count(*) FROM runs").fetchone()[0] == 0


def test_no_plugin_of_sqlite_utils_is_looked_for(tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr("sqlite_utils.db.ensure_plugins_loaded", lambda: looked.append(True))

    connect(tmp_path / "w.db").close()
    connect(tmp_path / "w.db", is_reader=True).close()

    assert not looked


def test_opening_again_keeps_the_locks_of_the_connections_that_are_open(tmp_path: Path) -> None:
    path = tmp_path / "data" / "w.db"
    log = path.with_name("w.db-wal")
    first = connect(path)
    first.execute("CREATE TABLE t (x)")

    connect(path).conn.close()
    # The last connection to a database removes its log: another process is not the last.
    other = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('select * from t')"
    subprocess.run([sys.executable, "-c", f"{other}; c.close()"], check=True)

    assert log.exists()
    first.execute("INSERT INTO t VALUES (1)")
    assert first.execute("SELECT count(*) FROM t").fetchone() == (1,)
    first.conn.close()
