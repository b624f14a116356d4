"""Tokens of the API: needed, kept apart, and not to be guessed."""

import json

import httpx
import pytest
from sqlite_utils import Database

from app.api import auth
from core.config import DataDir
from db.tokens import add_token
from tests.app.api_steps import (
    register,
)


def test_health_needs_no_token_and_runs_do(api: httpx.Client) -> None:
    api.headers["Authorization"] = "Bearer wrong"

    assert api.get("/health").json()["status"] == "ok"
    assert api.get("/runs").status_code == 401


def test_token_file_is_for_its_owner_only(api: httpx.Client, data_dir: DataDir) -> None:
    assert data_dir.token_path.stat().st_mode & 0o777 == 0o600


def test_many_wrong_tokens_are_slowed_down_even_with_the_right_one_if_it_can_be_guessed(
    api: httpx.Client, db: Database
) -> None:
    add_token(db, "of-host-b", "host-b")
    api.headers["Authorization"] = "Bearer wrong"
    codes = [api.get("/runs").status_code for _ in range(auth.MAX_FAILURES + 1)]
    api.headers["Authorization"] = "Bearer of-host-b"

    assert set(codes[:-1]) == {401}
    assert codes[-1] == 429
    assert api.get("/runs").status_code == 429


@pytest.mark.parametrize("wrong", ["", "Bearer wrong", "Bearer " + "w" * 43, "Basic d3Jvbmc6"])
def test_a_worker_that_starts_while_somebody_guesses_at_its_address_is_let_in(
    api: httpx.Client, wrong: str
) -> None:
    right = api.headers["Authorization"]
    api.headers["Authorization"] = wrong
    codes = {api.get("/runs").status_code for _ in range(auth.MAX_FAILURES + 5)}
    assert codes == {401, 429}
    api.headers["Authorization"] = right

    assert api.get("/runs").status_code == 200


def test_each_worker_can_have_its_own_token(api: httpx.Client, db: Database) -> None:
    add_token(db, "of-host-b", "host-b")
    api.headers["Authorization"] = "Bearer of-host-b"

    register(api)

    info = json.loads(db.execute("SELECT info FROM workers").fetchone()[0])
    assert (info["token"], info["is_embedded"]) == ("host-b", False)


def test_who_guesses_tokens_does_not_cut_off_the_workers_of_the_same_address(
    api: httpx.Client,
) -> None:
    right = api.headers["Authorization"]
    register(api)
    api.headers["Authorization"] = "Bearer wrong"
    codes = {api.get("/runs").status_code for _ in range(auth.MAX_FAILURES + 1)}
    api.headers["Authorization"] = right

    assert codes == {401, 429}
    assert api.get("/runs").status_code == 200


def test_token_that_was_replaced_is_not_taken_any_more(
    api: httpx.Client, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "TOKENS_AGE_S", 0.0)
    add_token(db, "of-host-b", "host-b")
    api.headers["Authorization"] = "Bearer of-host-b"
    before = api.get("/runs").status_code
    add_token(db, "another", "host-b")

    assert (before, api.get("/runs").status_code) == (200, 401)
