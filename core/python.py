"""How a module of ours, or of Python's, is started as a process of its own."""

import os
import sys
from collections.abc import Mapping

from core.config import ROOT


def module_command(module: str, *words: str, python: str = sys.executable) -> list[str]:
    """Return `python -P -m MODULE WORDS...`; rooms are found by `with_rooms`.

    Without `-P` Python looks in the current folder first: whoever runs a command in a folder of
    somebody else would run that folder's `json.py`.
    """
    return [python, "-P", "-m", module, *words]


def with_rooms(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the folder of our rooms in front of PYTHONPATH."""
    theirs = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    return {**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), *theirs])}
