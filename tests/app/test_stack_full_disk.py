"""A full disk ends nothing of `up`: what cannot be written is written later."""

import sys
import time
from pathlib import Path

import pytest

from app.parts import Part
from app.stack import Stack, StackOptions
from core.config import DataDir


def test_part_starts_although_its_log_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("where a folder should be")
    command = [sys.executable, "-S", "-c", "print('said to nobody')"]
    part = Part("x", command, tmp_path / "file" / "x.log", once=True)
    part.start()
    deadline_s = time.monotonic() + 20
    while part.state == "running" and time.monotonic() < deadline_s:
        time.sleep(0.02)
        part.poll()
    assert part.state == "done"


def test_state_that_cannot_be_written_is_written_with_a_later_step(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stack(data_dir, StackOptions(has_pages=False), lambda _: None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        stack.step()
    assert not data_dir.stack_path.exists()
    stack.step()
    assert data_dir.stack_path.exists()


def test_runs_of_a_worker_that_ended_wait_for_a_sound_database(data_dir: DataDir) -> None:
    said: list[str] = []
    (data_dir.root / "worker-all.id").write_text("w1")
    data_dir.db_path.write_bytes(b"garbage" * 1000)
    Stack(data_dir, StackOptions(), said.append)._give_up_worker_runs()
    assert "not given up yet" in said[0]
