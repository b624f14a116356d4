"""Reads mutants in a child under limits, each in a process of its own, and measures each.

The name of this module is what `captures.sandbox` starts. The answer of mutant N is the folder
`N/0`, what it used `N/usage.json`. A process that is only forked, never started anew, is measured
from the memory of this one on: a started one is said to have had the memory of whoever started it.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis import read_job

USAGE = "usage.json"


def main(request: Mapping[str, Any], scratch: Path) -> None:
    """Read each job of the request, one after the other."""
    for number, job in enumerate(request["jobs"]):
        folder = scratch / str(number)
        folder.mkdir()
        started = time.monotonic()
        process = os.fork()
        if not process:
            _read({**request, "jobs": [job]}, folder)
        _, status, used = os.wait4(process, 0)
        usage = {
            "memory_mb": round(used.ru_maxrss * 1024 / 1e6),
            "cpu_s": round(used.ru_utime + used.ru_stime, 2),
            "wall_s": round(time.monotonic() - started, 2),
            "exit_code": os.waitstatus_to_exitcode(status),
        }
        (folder / USAGE).write_text(json.dumps(usage))


def _read(request: Mapping[str, Any], folder: Path) -> None:
    """Read one mutant and end this process, whatever it does."""
    code = 1
    try:
        read_job.main(request, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
