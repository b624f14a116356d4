"""`doctor` names what was broken on purpose, each with its fix."""

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.checks import dashboard_checks
from app.cli import doctor
from core.config import DataDir
from core.errors import UserError
from db.connection import connect, opened
from db.workers import add_token


def check(data: DataDir, name: str) -> dict[str, Any]:
    return next(c for c in dashboard_checks(data) if c["name"] == name)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:secret@127.0.0.1:1/0", "127.0.0.1:1/0: "),
        ("localhost:6379", "localhost:6379 is no Redis URL"),
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
    assert [c["name"] for c in dashboard_checks(data_dir) if not c["is_ok"]] in ([], ["disk"])


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
