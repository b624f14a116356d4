"""What lies in the data directory: its owner's alone, and nothing that nobody comes back for."""

import os
import shutil
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sqlite_utils import Database

from app.api import watch
from app.api.app import make_state
from app.api.watch import clean_uploads, disk_state, tidy
from app.keys import main as keys_main
from app.keys import make_keys
from core.config import DataDir
from db.connection import opened
from db.lifecycle import transition
from db.queue import claim_run, request_cancel
from tests.app.conftest import Cli

MakeRun = Callable[..., str]
Usage = namedtuple("Usage", "total used free")


def old(path: Path, age_s: float = 2 * 86_400) -> Path:
    """Make a folder with a file in it that was written long ago."""
    path.mkdir(parents=True)
    (path / "x.part").write_text("x")
    then = time.time() - age_s
    for found in (path / "x.part", path):
        os.utime(found, (then, then))
    return path


def test_old_uploads_of_nobody_go_and_those_that_are_awaited_stay(
    db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    cancelled, running, lost = make_run(), make_run(), make_run()
    request_cancel(db, cancelled)
    for run_id in (running, lost):
        claim_run(db, run_id, worker_id="w1", gpu_id=None, task_id="t")
    transition(db, lost, "interrupted")
    for name in (cancelled, running, lost, "u-failed-import"):
        old(data_dir.uploads / name)
    (data_dir.uploads / "u-new").mkdir()

    assert sorted(clean_uploads(db, data_dir)) == sorted([cancelled, "u-failed-import"])
    assert {p.name for p in data_dir.uploads.iterdir()} == {running, lost, "u-new"}


def test_deleting_a_run_takes_its_uploads(
    cli: Cli, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = make_run()
    request_cancel(db, run_id)
    old(data_dir.uploads / run_id)

    assert cli("delete", run_id) == 0
    assert not (data_dir.uploads / run_id).exists()


@pytest.mark.parametrize(("free", "state"), [(10**10, "ok"), (10**9, "low"), (10**8, "full")])
def test_disk_is_watched(
    api: httpx.Client, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, free))

    assert disk_state(data_dir) == state
    found = make_state(data_dir)
    tidy(found)
    assert found.disk == state
    assert api.get("/health").json()["disk"] in ("ok", state)


def test_data_directory_is_its_owners_alone(tmp_path: Path) -> None:
    data = DataDir(root=tmp_path / "new").ensure()
    assert data.root.stat().st_mode & 0o777 == 0o700
    with opened(data.db_path):
        pass
    data.root.chmod(0o755)

    assert data.ensure().root.stat().st_mode & 0o777 == 0o700


def test_folder_that_is_no_data_directory_yet_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    DataDir(root=tmp_path).ensure()
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_what_a_command_stores_is_its_owners_alone(
    cli: Cli, data_dir: DataDir, example_captures: Path
) -> None:
    before = os.umask(0o022)
    try:
        capture = example_captures / "decode_eager.sqlite"
        assert cli("import", str(capture)) == 0
    finally:
        os.umask(before)

    files = [p for p in data_dir.root.rglob("*") if p.is_file()]
    assert files
    assert [p for p in files if p.stat().st_mode & 0o077] == []


def test_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    make_keys(tmp_path)
    first = {p.name: p.read_text() for p in tmp_path.iterdir()}
    make_keys(tmp_path)

    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == first
    assert [p for p in tmp_path.iterdir() if p.stat().st_mode & 0o077] == []
    password = first["redis.password"].strip()
    assert len(password) == 64
    assert f"requirepass {password}\n" in first["redis.conf"]
    assert first["broker.url"] == f"redis://:{password}@redis:6379/0\n"


def test_volume_of_another_user_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: "redis" not in str(path))

    assert keys_main([str(tmp_path), "/redis"]) == 2
    assert "/redis" in capsys.readouterr().err
    assert watch.MAX_AGE_S == 86_400
