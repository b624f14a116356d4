"""Run `python -m workloads` many times while importing PyTorch once: a forked child each.

Reads one JSON request a line, `{"argv", "env", "stdout", "stderr", "events"}` (the last three are
paths), and answers each with the exit code. PyTorch runs nothing here before the fork, so that the
children start like programs of their own.
"""

import json
import os
import sys
import traceback
from typing import Any

import torch
import torch.profiler  # noqa: F401

from workloads.__main__ import main


def run_child(request: dict[str, Any]) -> None:
    """Become the program; never returns."""
    code = 70
    try:
        os.environ.update(request["env"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for fd, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(request[name], flags), fd)
        events = os.open(request["events"], flags)
        code = main([*request["argv"], "--events-fd", str(events)])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run_child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
