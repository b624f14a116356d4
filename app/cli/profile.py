"""`warpboard profile` without the bootstrap script: hand over to `worker.profile`."""

import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser, Namespace

from app.cli.command import Command
from core.config import ROOT, DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rest", nargs=REMAINDER, help="see `warpboard profile --help`")


def run(options: Namespace, data: DataDir) -> int:
    """Become the program that measures; it needs nothing but a Python."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "WARPBOARD_DATA": str(data.root),
    }
    command = [sys.executable, "-m", "worker.profile", *options.rest]
    if options.rest[:1] in (["--help"], ["-h"]):
        return subprocess.call(command, env=environment)
    os.execve(sys.executable, command, environment)


COMMAND = Command(
    help="measure any program, unchanged", arguments=arguments, run=run, has_json=False
)
