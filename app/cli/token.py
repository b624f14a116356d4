"""`warpboard token LABEL`: a token for a worker on another host. Shown once, stored as a hash."""

import secrets
from argparse import ArgumentParser, Namespace

from app.cli.command import Command, add_json
from app.cli.output import note, print_json
from core.config import DataDir
from core.console import word


def arguments(parser: ArgumentParser) -> None:
    text = "e.g. the host's name; the same label replaces its token"
    parser.add_argument("label", metavar="LABEL", type=word, help=text)
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from db.connection import opened
    from db.workers import add_token

    token = secrets.token_urlsafe(32)
    with opened(data.db_path) as db:
        add_token(db, token, options.label)
    if options.json:
        print_json({"label": options.label, "token": token})
    else:
        note("put this line into a file on the other host and name it with --token-file:")
        print(token)
    return 0


COMMAND = Command(help="make a token for a worker", arguments=arguments, run=run)
