"""`warpboard test` is handled by the bootstrap script: it needs an environment of its own."""

from argparse import REMAINDER, ArgumentParser, Namespace

from app.cli.command import Command
from core.config import DataDir
from core.errors import UserError


def arguments(parser: ArgumentParser) -> None:
    words = "passed to pytest; `--shuffle SEED`: in random order"
    parser.add_argument("rest", nargs=REMAINDER, help=words)


def run(options: Namespace, data: DataDir) -> int:
    raise UserError("test: start it as `./warpboard test`, which makes the test environment")


COMMAND = Command(help="run the test suite", arguments=arguments, run=run, has_json=False)
