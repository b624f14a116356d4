"""The steps to another GPU host: this dashboard's addresses, and never a password."""

from pathlib import Path

import pytest

from app import second_host
from app.second_host import Step, steps
from core.config import DataDir

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with one address, and no broker or published port of the tests' own."""
    monkeypatch.setattr(second_host, "own_address", lambda: "10.0.0.5")
    for name in ("WARPBOARD_BROKER", "WARPBOARD_BROKER_FILE", "WARPBOARD_WORKERS_PUBLISH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("WARPBOARD_REDIS_PUBLISH", raising=False)


def all_of(found: list[Step]) -> str:
    return "\n".join(f"{s.title} {s.text} {s.commands}" for s in found)


def test_what_is_shut_is_opened_with_this_hosts_address(data_dir: DataDir) -> None:
    found = steps(data_dir)
    assert "--workers-host 10.0.0.5" in found[0].commands
    assert "redis://:PASSWORD@10.0.0.5:6379/0" in found[1].commands
    assert found[-1].commands.startswith("./warpboard worker --dashboard http://10.0.0.5:8502 ")
    assert not any(step.is_done for step in found)


def test_what_is_open_is_done_and_its_address_stands_in_the_last_command(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = tmp_path / "broker.url"
    broker.write_text(f"redis://:{SECRET}@10.9.9.9:6380/0\n")
    monkeypatch.setenv("WARPBOARD_BROKER_FILE", str(broker))
    running = {"workers": "0.0.0.0:8600"}
    monkeypatch.setattr(second_host, "running_stack", lambda data: running)
    found = steps(data_dir)
    assert [step.is_done for step in found[:2]] == [True, True]
    assert "http://10.0.0.5:8600" in found[0].text and "10.9.9.9:6380" in found[1].text
    assert "--dashboard http://10.0.0.5:8600 " in found[-1].commands
    assert SECRET not in all_of(found)


def test_in_a_container_the_published_addresses_are_named(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_BROKER_FILE", "/secrets/broker.url")
    monkeypatch.setenv("WARPBOARD_WORKERS_PUBLISH", "10.1.1.1:8502")
    monkeypatch.setenv("WARPBOARD_REDIS_PUBLISH", "10.1.1.1:6379")
    found = steps(data_dir)
    assert all(step.is_done for step in found[:2])
    assert found[2].commands.startswith("docker compose exec dashboard")
    assert "http://10.1.1.1:8502" in found[-1].commands


def test_token_and_password_are_steps_of_their_own(data_dir: DataDir) -> None:
    titles = [step.title for step in steps(data_dir)]
    assert "Make a token" in titles and "Carry token and password over" in titles
