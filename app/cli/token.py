"""`warpboard token`: tokens of workers on other hosts. A token is shown once and kept as a hash."""

import secrets
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from app.cli.output import add_json, note, print_json
from core.config import DataDir
from core.console import word
from core.errors import UserError

if TYPE_CHECKING:
    from db import Database

WORDS = ("list", "revoke")


def arguments(parser: ArgumentParser) -> None:
    text = "LABEL: make a token for a host's one worker (the same label replaces its token);"
    text += " list: labels, workers and last uses; revoke LABEL: refuse that token from now on"
    parser.add_argument("words", metavar="LABEL", nargs="+", type=word, help=text)
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened

    first, *rest = options.words
    if len(rest) != (first == "revoke"):
        raise UserError("token: write `token LABEL`, `token list` or `token revoke LABEL`")
    with opened(data.db_path) as db:
        if first == "list":
            _list(db, is_json=options.json)
        elif first == "revoke":
            _revoke(db, rest[0], is_json=options.json)
        else:
            _make(db, first, is_json=options.json)
    return 0


def _make(db: "Database", label: str, *, is_json: bool) -> None:
    from db.tokens import add_token

    token = secrets.token_urlsafe(32)
    add_token(db, token, label)
    if is_json:
        print_json({"label": label, "token": token})
        return
    note("put this line into a file on the other host and name it with --token-file;")
    note("the first worker that registers with it is the only one that may use it:")
    print(token)


def _list(db: "Database", *, is_json: bool) -> None:
    from db.tokens import tokens

    rows = tokens(db)
    if is_json:
        print_json({"tokens": [asdict(row) for row in rows]})
        return
    for row in rows:
        used = f"last used {row.last_used_at}" if row.last_used_at else "never used"
        worker = row.worker_id or "no worker yet"
        print(f"{row.label}  {worker}  made {row.created_at}  {used}")
    if not rows:
        note("no token for another host; `warpboard token LABEL` makes one")


def _revoke(db: "Database", label: str, *, is_json: bool) -> None:
    from db.tokens import revoke_token

    revoke_token(db, label)
    if is_json:
        print_json({"revoked": label})
    else:
        note(f"the token {label} is not taken any more")
