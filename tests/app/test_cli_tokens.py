"""Tokens and GPUs on the command line: listed, revoked, forgotten."""

import pytest
from sqlite_utils import Database

from db.tokens import token_digests
from db.workers import register_worker, worker_stopped
from tests.app.conftest import Cli

H100 = {"model": "NVIDIA H100", "uuid": "GPU-1", "peaks": {"copy_bytes_per_s": 3e12}}


def test_token_is_made_listed_and_revoked(cli: Cli, db: Database) -> None:
    assert cli("token", "host-a") == 0
    token = cli.out.strip()
    listed = cli.json("token", "list")

    assert len(token) >= 43
    assert token not in str(listed)
    assert [(t["label"], t["worker_id"]) for t in listed["tokens"]] == [("host-a", None)]
    assert cli("token", "revoke", "host-a") == 0
    assert token_digests(db) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["token", "revoke", "nobody"], "there are: none"),
        (["token", "revoke"], "write `token LABEL`"),
        (["token", "a", "b"], "write `token LABEL`"),
        (["token", "embedded"], "own workers"),
        (["token", "a\x1b[2Jb"], "label is"),
        (["token", "a\u202eb"], "label is"),
        (["token", "x" * 5000], "label is"),
        (["gpu", "remove", "GPU-9"], "gpu list"),
        (["gpu", "remove"], "gpu remove ID"),
    ],
)
def test_wrong_words_are_refused(cli: Cli, words: list[str], said: str) -> None:
    assert cli(*words) == 2
    assert said in cli.err


def test_a_label_that_looks_the_same_is_the_same(cli: Cli, db: Database) -> None:
    assert cli("token", "caf\u00e9") == cli("token", "cafe\u0301") == 0
    assert len(token_digests(db)) == 1
    assert cli("token", "revoke", "cafe\u0301") == 0
    assert token_digests(db) == {}


def test_gpu_of_an_ended_worker_is_forgotten(cli: Cli, db: Database) -> None:
    register_worker(db, "w1", version="1", queues=(), gpus=[H100], info={})
    assert cli("gpu", "remove", "GPU-1") == 2
    assert "online" in cli.err
    worker_stopped(db, "w1")

    assert cli("gpu", "remove", "GPU-1") == 0
    assert cli.json("gpu", "list") == {"gpus": []}
    assert db.execute("SELECT count(*) FROM gpu_peaks").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM workers").fetchone() == (0,)
