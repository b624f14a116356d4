"""`warpboard run`, `worker`, `profile` without the bootstrap script: become another program."""

import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser, Namespace

from core.config import ROOT, DataDir
from core.errors import UserError
from core.python import module_command, with_rooms

MODULES = {"run": "worker.run_bundle", "worker": "worker", "profile": "worker.profile"}


def arguments(parser: ArgumentParser) -> None:
    command = parser.prog.split()[-1]
    words = "passed to pytest; `--shuffle SEED`: in random order"
    if command in MODULES:
        words = f"see `python -m {MODULES[command]} --help`"
    parser.add_argument("rest", nargs=REMAINDER, help=words)


def run(options: Namespace, data: DataDir) -> int:
    """Replace this process by the module, run with the Python that it needs.

    `--help` needs no torch and no installation: it runs here and returns.
    """
    if options.command == "test":
        raise UserError("test: start it as `./warpboard test`, which makes the test environment")
    is_profile = options.command == "profile"
    module = MODULES[options.command]
    environment = {**with_rooms(os.environ), "WARPBOARD_DATA": str(data.root)}
    if not is_profile:  # the measured program keeps its own import path
        environment["PYTHONPATH"] = str(ROOT)
    if {"-h", "--help"} & set(options.rest[:1] if is_profile else options.rest):
        return subprocess.call(module_command(module, "--help"), env=environment)
    python = sys.executable
    if not is_profile:
        from app.environments import torch_python

        python = torch_python()
    os.execve(python, module_command(module, *options.rest, python=python), environment)
