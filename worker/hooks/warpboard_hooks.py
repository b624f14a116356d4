"""How `warpboard profile` enters a Python program: it waits for torch, and for the program's end.

A step is seen from outside: a call of the outermost module, and the step of an optimizer. The clean
pass writes down when each began and ended, with CUDA events and no synchronisation; the other
passes open ranges around steps and their parts, and switch their profiler on for the chosen steps.

Standard library and the program's own torch only; Python 3.8 and newer. What is known of a process
is in `warpboard_session`, what runs at each call in `warpboard_calls`, the events in
`warpboard_events`, the file in `warpboard_records`, what the profiled passes do around steps in
`warpboard_captures`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from warpboard_records import ENTERED
from warpboard_session import Session

_active = None


def enter(settings_text):
    """Begin to wait for torch; called once as Python starts."""
    global _active
    settings = json.loads(settings_text)
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(settings["dir"], ENTERED), os.O_WRONLY | os.O_CREAT, 0o600))
    _active = Session(settings)
    os.register_at_fork(after_in_child=_active.after_fork)
    _before_exit(_active)
    _on_import("torch", _active.torch_is_here)
    _on_import("torch._dynamo.eval_frame", _active.compiler_is_here)


def _before_exit(session):
    """Read the last events of programs and children that end by `os._exit`."""
    leave = os._exit

    def _exit(status):
        with contextlib.suppress(Exception):
            if session.records is not None:
                session.look(time.perf_counter_ns())
        leave(status)

    _exit.__wrapped__ = leave
    os._exit = _exit


def current():
    """Return the session of this process, for `warpboard_marks`; None outside of a profile."""
    return _active


class _Watcher:
    """An import hook that finds nothing itself: it only notices when one module is imported."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path[:] = [f for f in sys.meta_path if f is not self]
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                break
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._follow(spec.loader)
        return spec

    def _follow(self, loader):
        run = loader.exec_module

        def exec_module(module):
            loader.__dict__.pop("exec_module", None)
            run(module)
            try:
                self.then(module)
            except Exception:
                if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
                    raise

        with contextlib.suppress(AttributeError):  # a loader without a __dict__
            loader.exec_module = exec_module


def _on_import(name, then):
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Watcher(name, then))
