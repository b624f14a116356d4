"""Run a command that ends when the process that started it ends: `launch.py PARENT_PID COMMAND...`.

Standard library only, and run by path, so that it starts in milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: int, command: list[str]) -> None:
    """Ask the kernel for SIGTERM at the parent's death, then become the command."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before we could ask
        sys.exit(1)
    os.umask(0o077)  # what the processes of the dashboard write is for its user alone
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
