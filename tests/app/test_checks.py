"""`doctor` names what was broken on purpose, each with its fix."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.checks import dashboard_checks
from app.cli import doctor
from app.stack import free_port
from core.config import DataDir
from core.errors import UserError
from db.connection import connect, opened
from db.tokens import add_token


def check(data: DataDir, name: str) -> dict[str, Any]:
    return next(c for c in dashboard_checks(data) if c["name"] == name)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:secret@127.0.0.1:1/0", "127.0.0.1:1/0: "),
        ("localhost:6379", "localhost:6379 is not a Redis URL"),
        ("redis://nowhere.invalid:6379/0", "nowhere.invalid"),
    ],
)
def test_broken_broker_is_named_without_its_password(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setenv("WARPBOARD_BROKER", url)
    found = check(data_dir, "broker")
    assert not found["is_ok"]
    assert said in found["found"]
    assert "secret" not in json.dumps(found)
    assert found["fix"]


def test_file_that_is_no_database_is_named(data_dir: DataDir) -> None:
    data_dir.db_path.write_bytes(b"garbage" * 1000)
    found = check(data_dir, "database")
    assert not found["is_ok"]
    assert "not a database" in found["found"]


def test_damaged_pages_are_named(data_dir: DataDir) -> None:
    with opened(data_dir.db_path) as db:
        db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = data_dir.db_path.stat().st_size
    with data_dir.db_path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\x55" * (size - 4096 * 4))
    found = check(data_dir, "database")
    assert not found["is_ok"]
    assert found["fix"]


def test_database_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(UserError, match="cannot be opened"):
        connect(tmp_path / "data" / "warpboard.db")
    faults = {
        c["name"] for c in dashboard_checks(DataDir(root=tmp_path / "data")) if not c["is_ok"]
    }
    assert faults >= {"data", "database"}


def test_sound_directory_has_no_fault(data_dir: DataDir) -> None:
    sqlite3.connect(data_dir.db_path).close()
    checks = dashboard_checks(data_dir, free_port())
    assert [c["name"] for c in checks if not c["is_ok"]] in ([], ["disk"])


def fault(data: DataDir, name: str, port: int | None = None) -> dict[str, Any]:
    """Return the one check of this name that is at fault; it has its fix."""
    found = [c for c in dashboard_checks(data, port or free_port()) if c["name"] == name]
    (bad,) = [c for c in found if not c["is_ok"]]
    assert bad["fix"] and "\n" not in bad["found"] + bad["fix"]
    return bad


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[int]:
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen([*command, "--dir", str(folder), *options], stdout=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.02)
        yield port
    finally:
        server.terminate()
        server.wait()


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server")
def test_redis_that_forgets_or_has_another_password_is_named(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(tmp_path, "--requirepass", "right") as port:
        monkeypatch.setenv("WARPBOARD_BROKER", f"redis://:wrong@127.0.0.1:{port}/0")
        assert "password" in fault(data_dir, "broker")["fix"]
        monkeypatch.setenv("WARPBOARD_BROKER", f"redis://127.0.0.1:{port}/0")
        assert "password" in fault(data_dir, "broker")["fix"]
        monkeypatch.setenv("WARPBOARD_BROKER", f"redis://:right@127.0.0.1:{port}/0")
        assert check(data_dir, "broker")["is_ok"]
        assert "--appendonly yes" in fault(data_dir, "broker memory")["fix"]


def test_database_of_a_newer_version_is_not_called_damaged(data_dir: DataDir) -> None:
    with opened(data_dir.db_path) as db:
        db.execute("CREATE TABLE of_m099 (x)")
        db.execute("INSERT INTO _sqlite_migrations VALUES (99, 'warpboard', 'm099_x', 'now')")
        db.conn.commit()
    assert "Update" in fault(data_dir, "database")["fix"]


def test_database_that_is_held_by_another_program_is_named(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.connection.BUSY_TIMEOUT_S", 0.1)
    with opened(data_dir.db_path):
        pass
    holder = sqlite3.connect(data_dir.db_path)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    assert "fuser" in fault(data_dir, "database")["fix"]
    holder.close()


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [("t\n", 0o644, "read by others"), ("", 0o600, "is empty"), (None, 0, "No such file")],
)
def test_token_file_that_is_open_empty_or_missing_is_named(
    data_dir: DataDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    mode: int,
    said: str,
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    monkeypatch.setenv("WARPBOARD_TOKEN_FILE", str(path))
    assert said in fault(data_dir, "token")["found"]


def test_port_that_another_program_has_is_named(data_dir: DataDir) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        assert f"'sport = :{port}'" in fault(data_dir, "port", port)["fix"]


def test_worker_of_another_version_or_time_is_named(api: httpx.Client, data_dir: DataDir) -> None:
    body = {"worker_id": "w1", "version": "0.0.9", "queues": [], "host_label": "node7"}
    api.post("/workers", json=body | {"clock_s": time.time() - 300}).raise_for_status()
    assert "node7 is version 0.0.9" in fault(data_dir, "version")["found"]
    assert "node7 is 300 s behind" in fault(data_dir, "clock")["found"]


def test_dashboard_with_another_time_is_named(
    token_file: Path, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.checks._skew_s", lambda _: -3600.0)
    assert "the dashboard is 3600 s ahead" in fault(data_dir, "clock")["found"]


def test_port_where_a_warpboard_answers_is_no_fault(api: httpx.Client, data_dir: DataDir) -> None:
    checks = dashboard_checks(data_dir, api.base_url.port or 0)
    assert all(c["is_ok"] for c in checks if c["name"] == "port")


@pytest.fixture
def token_file(
    api: httpx.Client,
    data_dir: DataDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """Name a dashboard that answers, and a token for it, as on another host."""
    with opened(data_dir.db_path) as db:
        add_token(db, "a good token", "other")
    path = tmp_path / "token"
    path.write_text("a good token\n")
    monkeypatch.setenv("WARPBOARD_DASHBOARD", str(api.base_url).removesuffix("/api/v1/"))
    # Not by the environment: the API in this process would take the file for its own.
    monkeypatch.setattr("app.checks.token_path", lambda _: path)
    yield path


def test_token_that_is_taken_is_no_fault(token_file: Path, data_dir: DataDir) -> None:
    assert check(data_dir, "dashboard")["is_ok"]


def test_wrong_token_is_named(token_file: Path, data_dir: DataDir) -> None:
    token_file.write_text("stolen")
    found = check(data_dir, "dashboard")
    assert str(token_file) in found["found"]
    assert "warpboard token" in found["fix"]


def test_missing_token_file_is_named(token_file: Path, data_dir: DataDir) -> None:
    token_file.unlink()
    assert "No such file" in check(data_dir, "dashboard")["found"]


def test_dashboard_that_is_away_is_named(
    token_file: Path, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DASHBOARD", "http://127.0.0.1:1")
    found = check(data_dir, "dashboard")
    assert not found["is_ok"]
    assert "http://127.0.0.1:1" in found["found"]


def test_worker_python_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPBOARD_PYTHON", os.devnull + "/python")
    (found,) = doctor._worker_probe()["checks"]
    assert (found["name"], found["is_ok"]) == ("worker", False)
    assert "WARPBOARD_PYTHON" in found["fix"]
