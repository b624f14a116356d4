"""A Python that has imported PyTorch and runs programs in forks: `python -m tests.warm.server`.

Importing PyTorch and taking it apart at the end costs seconds of processor time, more than most
programs of the tests. To a program, and to hooks that wait for an import, it looks as if nothing
were imported: PyTorch's modules are laid aside, and given to the first `import torch`.

`client.py` is what stands for the program. A connection that asks for nothing keeps the server
running; it ends with the last one.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

MOST_FILES = 253  # of one message
COMPILER = "torch._dynamo"


class LaidAside:
    """Finder of the modules of PyTorch that were imported before the fork."""

    def __init__(self) -> None:
        names = [n for n in sys.modules if n == "torch" or n.startswith("torch.")]
        self._modules = {name: sys.modules.pop(name) for name in names}

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name not in self._modules:
            return None
        # A loader of its own for each module: who waits for an import changes it.
        loader = LoadedBefore(self._modules[name], self._bring)
        return importlib.machinery.ModuleSpec(name, loader)  # type: ignore[arg-type]

    def _bring(self, name: str) -> None:
        """Do what executing the module would: have in place what it imports."""
        if name == COMPILER:
            importlib.import_module(f"{COMPILER}.eval_frame")
        elif name != "torch":
            return
        for other, module in self._modules.items():
            if name == COMPILER or not other.startswith(COMPILER):
                sys.modules.setdefault(other, module)


class LoadedBefore:
    """A loader for one module, which keeps the spec that it was made with."""

    def __init__(self, module: types.ModuleType, bring: Any) -> None:
        self._module, self._bring = module, bring
        kept = ("__spec__", "__loader__", "__path__", "__file__", "__cached__", "__package__")
        self._kept = {name: getattr(module, name) for name in kept if hasattr(module, name)}

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(self._kept)
        self._bring(module.__name__)


def become(request: dict[str, Any], python: str, own_path: list[str]) -> NoReturn:
    """In the fork: start as Python would with these arguments, and end as it would."""
    code: Any = 0
    try:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.executable = python
        argv = request["argv"]
        flags = set()
        while argv[0] in ("-P", "-u", "-B"):
            flags.add(argv.pop(0))
        open_streams(request["files"], "-u" in flags or "PYTHONUNBUFFERED" in os.environ)
        sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(":")), *own_path]
        sys.path_importer_cache.clear()
        sys.modules.pop("sitecustomize", None)
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")
        execute(argv, has_own_folder="-P" not in flags)
    except SystemExit as error:
        code = error.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code or 0)


def execute(argv: list[str], has_own_folder: bool) -> None:
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    how, what, rest = argv[0], argv[1] if len(argv) > 1 else "", argv[2:]
    folder = os.getcwd() if how == "-m" else ""
    if not how.startswith("-"):
        folder, what, rest = str(Path(how).resolve().parent), how, argv[1:]
    if has_own_folder:
        sys.path.insert(0, folder)
    sys.argv = [how, *rest]
    if how == "-m":
        runpy._run_module_as_main(what)  # type: ignore[attr-defined]
    elif how == "-c":
        exec(compile(what, "<string>", "exec"), vars(main))
    else:
        main.__file__ = what
        exec(compile(Path(what).read_bytes(), what, "exec"), vars(main))


def open_streams(files: list[int], write_through: bool) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: Any = None
        if number in files:
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            stream.reconfigure(line_buffering=number == 2, write_through=write_through)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def take_over(files: list[int], wanted: list[int]) -> None:
    """In the fork: have the client's files under the numbers that it has, and no other."""
    high = max(*files, *wanted) + 1
    for number, file in enumerate(files):
        os.dup2(file, high + number)
    os.closerange(0, high)
    for number, file in enumerate(wanted):
        os.dup2(high + number, file)
    os.closerange(max(wanted) + 1, high + 4096)


def received(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return what a client asks for and its files; None if it asks for nothing."""
    head, files, _, _ = socket.recv_fds(connection, 4, MOST_FILES)
    if len(head) < 4:
        return None
    left = int.from_bytes(head, "big")
    text = b""
    while len(text) < left:
        text += connection.recv(left - len(text))
    return json.loads(text), files


class Server:
    """Forks for each client; says how its program ended, or ends it if the client goes first."""

    def __init__(self, listener: socket.socket, python: str) -> None:
        self._python = python
        self._own_path = [p for p in sys.path if p and p != os.getcwd()]
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._num_connections = 0

    def serve(self) -> None:
        self._watch(self._listener, self._accept)
        self._accept()
        while self._num_connections:
            for key, _ in self._selector.select():
                key.data()

    def _watch(self, what: Any, then: Any) -> None:
        self._selector.register(what, selectors.EVENT_READ, then)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._num_connections += 1
        self._watch(connection, lambda: self._begin(connection))

    def _begin(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        asked = received(connection)
        if asked is None:
            self._close(connection)
            return
        request, files = asked
        pid = os.fork()
        if not pid:
            os.setsid()
            take_over(files, request["files"])
            become(request, self._python, self._own_path)
        for file in files:
            os.close(file)
        end = os.pidfd_open(pid)
        self._watch(connection, lambda: self._client_went(connection, pid))
        self._watch(end, lambda: self._program_ended(connection, pid, end))

    def _client_went(self, connection: socket.socket, pid: int) -> None:
        self._selector.unregister(connection)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.killpg(pid, signal.SIGKILL)

    def _program_ended(self, connection: socket.socket, pid: int, end: int) -> None:
        self._selector.unregister(end)
        os.close(end)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
            with contextlib.suppress(OSError):
                connection.sendall(code.to_bytes(4, "big", signed=True))
        self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        connection.close()
        self._num_connections -= 1


if __name__ == "__main__":
    gc.disable()
    import torch._dynamo
    import torch.profiler

    del torch
    gc.enable()
    gc.freeze()
    sys.meta_path.insert(0, LaidAside())
    Server(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]).serve()
    os._exit(0)
