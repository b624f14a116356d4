"""Runs one command and ends its whole process tree when it or the requesting process ends.

`python -I supervisor.py CONTROL_FD STATUS_FD PASS_FDS [rest] -- COMMAND...`, made by `supervised`:
for the processes of the dashboard (`app.parts`) and for jobs (`worker.process`). What is written to
the control pipe asks: `T` SIGTERM to the whole tree, `L` to the command alone; its end kills the
tree. With `rest`, what the command leaves running when it ends is told, and ended when asked for.
Exits with the command's code, 128 and the signal's number for one that a signal ended.
A process group is not enough: profilers put their helpers into sessions of their own. This process
adopts every orphan below it (PR_SET_CHILD_SUBREAPER), so the tree can be found and ended whole. It
notices the death of its parent, kill -9 included, because the control pipe then closes.
Runs as a plain script: it must start in milliseconds and import nothing of the product.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ASK_TREE, ASK_LEADER = b"T", b"L"
STOPS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
KILL_LIMIT_S = 10.0
MAX_TOLD = 200
"""Process numbers in one message: a message is written whole, or other writers come between."""


def supervised(
    command: "list[str]",
    control_fd: int,
    status_fd: int,
    pass_fds: "tuple[int, ...]" = (),
    *,
    leaves_rest: bool = False,
) -> "list[str]":
    """Return the command that runs another one under this script; the caller passes the pipes."""
    head = [sys.executable, "-I", os.path.abspath(__file__), str(control_fd), str(status_fd)]
    rest = ["rest"] if leaves_rest else []
    return [*head, ",".join(map(str, pass_fds)), *rest, "--", *command]


def main() -> int:
    control_fd, status_fd = int(sys.argv[1]), int(sys.argv[2])
    pass_fds = tuple(int(fd) for fd in sys.argv[3].split(",") if fd)
    options, command = sys.argv[4 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *STOPS):
        signal.signal(number, lambda *_: None)
    try:
        child = subprocess.Popen(
            command,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=lambda: _die_with_parent(libc),
        )
    except OSError as error:
        _report(status_fd, {"error": f"{command[0]}: {error.strerror}"})
        return 127
    for fd in pass_fds:
        os.close(fd)
    _report(status_fd, {"pid": child.pid})
    returncode = _wait(child, control_fd, wake_read)
    if returncode is not None and "rest" in options:
        _report(status_fd, {"returncode": returncode})
        _wait_for_rest(control_fd, status_fd, wake_read)
    kill_descendants()
    code = returncode if returncode is not None else child.wait()
    _report(status_fd, {"returncode": code})
    return code if code >= 0 else 128 - code


def _die_with_parent(libc: ctypes.CDLL) -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)


def _report(status_fd: int, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the process that asked may be gone
        os.write(status_fd, (json.dumps(message) + "\n").encode())


def _wait(child: "subprocess.Popen[bytes]", control_fd: int, wake_fd: int) -> int | None:
    """Return the child's exit code, or None when it must be killed now."""
    while True:
        ready, _, _ = select.select([control_fd, wake_fd], [], [], 1.0)
        if control_fd in ready:
            order = os.read(control_fd, 64)
            if not order:
                return child.poll()
            if ASK_TREE in order:
                signal_descendants(signal.SIGTERM)
            elif child.poll() is None:
                child.terminate()
        if wake_fd in ready and not STOPS.isdisjoint(os.read(wake_fd, 512)):
            return child.poll()
        if child.poll() is not None:
            return child.returncode


def _wait_for_rest(control_fd: int, status_fd: int, wake_fd: int) -> None:
    """Tell what the command left running, until that has ended or is to be killed."""
    told: list[int] = []
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants(os.getpid())
        if left != told:
            _report(status_fd, {"left": left[:MAX_TOLD]})
            told = left
        if not left:
            return
        ready, _, _ = select.select([control_fd, wake_fd], [], [], 0.2)
        if control_fd in ready:
            if not os.read(control_fd, 64):
                return
            signal_descendants(signal.SIGTERM)
        if wake_fd in ready and not STOPS.isdisjoint(os.read(wake_fd, 512)):
            return


def descendants(root: int) -> list[int]:
    """Return every live process below `root`, read from /proc."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rsplit(b")", 1)[1].split()[:2]
        except (OSError, IndexError, ValueError):
            continue
        if state != b"Z":
            parents[int(name)] = int(parent)
    below_root: set[int] = set()
    grew = True
    while grew:
        below = {p for p, parent in parents.items() if parent == root or parent in below_root}
        grew = below != below_root
        below_root = below
    return sorted(below_root)


def signal_descendants(number: int) -> list[int]:
    alive = descendants(os.getpid())
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return alive


def kill_descendants() -> None:
    """Kill until nothing is left below this process; children of the killed arrive here."""
    deadline = time.monotonic() + KILL_LIMIT_S
    while signal_descendants(signal.SIGKILL) and time.monotonic() < deadline:
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
