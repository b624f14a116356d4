"""Mark a program's steps and the phases inside them, for `warpboard profile` and Nsight Systems.

    from warpboard_marks import phase, step

    for batch in batches:
        with step():
            with phase("prefill"):
                ...

`@step` and `@phase("prefill")` mark functions. Without a profiler nothing happens, at the cost of a
function call. One file without dependencies: install Warpboard, or copy it. Free to use without the
rest of Warpboard.
"""

import functools
import os
import sys

__all__ = ["phase", "step"]

_UNDER_NSYS = "NSYS_PROFILING_SESSION_ID" in os.environ


class _Nothing:
    """A mark while nobody listens."""

    __slots__ = ()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        return None

    def __call__(self, function):
        return function


_NOTHING = _Nothing()


class _Mark:
    """A mark that is heard: a context manager, and a decorator."""

    __slots__ = ("_begin", "_end", "_name")

    def __init__(self, name, begin, end):
        self._name, self._begin, self._end = name, begin, end

    def __enter__(self):
        self._begin(self._name)
        return self

    def __exit__(self, *failure):
        self._end(self._name)

    def __call__(self, function):
        @functools.wraps(function)
        def marked(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return marked


def _listener():
    """Return what `warpboard profile` put into this process, or None."""
    hooks = sys.modules.get("warpboard_hooks")
    return hooks.current() if hooks is not None else None


def step(name="step"):
    """Mark one step: what latency, kernels and memory are counted by. `@step` marks a function."""
    if callable(name):
        return step(name.__name__)(name)
    listener = _listener()
    if listener is not None:
        return _Mark(name, listener.mark_begins, listener.mark_ends)
    return _range(name)


def phase(name):
    """Mark a part of a step."""
    listener = _listener()
    if listener is not None:
        return _Mark(name, listener.phase_begins, listener.phase_ends)
    return _range(name)


def _range(name):
    """Return an NVTX range where only Nsight Systems listens, by what PyTorch has of it."""
    torch = sys.modules.get("torch") if _UNDER_NSYS else None
    if torch is None or not torch.cuda.is_available():
        return _NOTHING
    nvtx = torch.cuda.nvtx
    return _Mark(name, nvtx.range_push, lambda _name: nvtx.range_pop())
