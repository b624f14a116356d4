"""`warpboard worker`: a worker for a dashboard on this or another host."""

from argparse import REMAINDER, ArgumentParser, Namespace

from app.cli.command import Command
from app.cli.run import hand_over
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rest", nargs=REMAINDER, help="see `python -m worker --help`")


def run(options: Namespace, data: DataDir) -> int:
    return hand_over("worker", options.rest, data)


COMMAND = Command(
    help="start a worker for a dashboard", arguments=arguments, run=run, has_json=False
)
