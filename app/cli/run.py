"""`warpboard run` and `worker` without the bootstrap script: hand over to the worker's Python."""

import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser, Namespace

from app.cli.command import Command
from core.config import ROOT, DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rest", nargs=REMAINDER, help="see `python -m worker.run_bundle --help`")


def run(options: Namespace, data: DataDir) -> int:
    return hand_over("worker.run_bundle", options.rest, data)


def hand_over(module: str, arguments_: list[str], data: DataDir) -> int:
    """Become the module in the Python that has torch; does not return.

    Its help needs no torch, so nobody waits for an installation to read it: that one does return.
    """
    from app.pythons import torch_python

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_DATA": str(data.root)}
    if {"-h", "--help"} & set(arguments_):
        return subprocess.call([sys.executable, "-m", module, "--help"], env=environment)
    python = torch_python()
    os.execve(python, [python, "-m", module, *arguments_], environment)


COMMAND = Command(
    help="run a workload here and leave a bundle", arguments=arguments, run=run, has_json=False
)
