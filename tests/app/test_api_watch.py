"""Silence of workers: only theirs, never the dashboard's own."""

import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import httpx
import pytest

from app.api import watch
from app.api.app import make_state
from app.api.state import ApiState
from core.config import DataDir
from tests.app.api_steps import MakeRun, claim, register


@pytest.fixture
def silent(api: httpx.Client, data_dir: DataDir, make_run: MakeRun) -> tuple[ApiState, str]:
    """Return a state whose one worker, with a claimed run, was last heard of an hour ago."""
    run_id = make_run()
    register(api)
    claim(api, run_id)
    state = make_state(data_dir)
    state.seen_s["w1"] = state.started_s = time.monotonic() - 3600
    return state, run_id


def test_worker_whose_heartbeat_waits_for_the_database_is_not_silent(
    silent: tuple[ApiState, str],
) -> None:
    state, run_id = silent
    state.asking["w1"] += 1
    assert watch.give_up_silent(state) == []
    del state.asking["w1"]
    assert watch.give_up_silent(state) == [run_id]


@pytest.mark.parametrize("is_frozen", [True, False])
def test_dashboard_that_stood_still_listens_anew(
    silent: tuple[ApiState, str], monkeypatch: pytest.MonkeyPatch, is_frozen: bool
) -> None:
    state, run_id = silent
    given_up: list[str] = []
    monkeypatch.setattr(watch, "INTERVAL_S", 0.01)
    monkeypatch.setattr(watch, "MAX_LATE_S", -1.0 if is_frozen else 60.0)
    looking = watch.give_up_silent
    monkeypatch.setattr(watch, "give_up_silent", lambda s: given_up.extend(looking(s)))

    async def look_a_while() -> None:
        with anyio.move_on_after(0.3):
            await watch.watch(state)

    # A thread of its own: a browser of other tests keeps a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(anyio.run, look_a_while).result()
    assert given_up == ([] if is_frozen else [run_id])
