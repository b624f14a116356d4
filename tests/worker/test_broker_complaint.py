"""A worker that cannot reach its broker says so: it would wait for jobs in silence."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import UserError
from tests.processes import redis_server
from worker.celery_app import broker_complaint


@pytest.fixture
def guarded_redis(tmp_path: Path) -> Iterator[str]:
    """Run a Redis with the password `right`; return its host and port."""
    with redis_server(tmp_path, "--requirepass", "right") as where:
        yield f"{where}/0"


def test_password_that_is_not_taken_ends_the_worker(guarded_redis: str) -> None:
    for password in ("", ":wrong@"):
        with pytest.raises(UserError, match="check the password in --broker") as told:
            broker_complaint(f"redis://{password}{guarded_redis}")
        assert "wrong@" not in str(told.value)
    assert broker_complaint(f"redis://:right@{guarded_redis}") is None


def test_broker_that_is_away_is_waited_for() -> None:
    assert "127.0.0.1:1" in (broker_complaint("redis://:secret@127.0.0.1:1/0") or "")
    assert broker_complaint("filesystem://") is None


@pytest.mark.parametrize("url", ["localhost:6379", "amqp://x", "redis://127.0.0.1:port/0"])
def test_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="--broker"):
        broker_complaint(url)
