"""What pages need is loaded once, by whoever comes first."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.ui import warm


def test_pages_are_loaded_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(warm, "_is_done", False)
    monkeypatch.setattr(warm, "_import", lambda: calls.append(1))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda _: warm.load(), range(8)))
    assert calls == [1]


def test_what_is_loaded_ahead_can_be_loaded() -> None:
    warm._import()
