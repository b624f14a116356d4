"""Read the large captures of one run side by side, each in a process of its own.

The processes are forked, so that they begin with everything imported, and pass on what they read by
pickle: all of them belong to one confined child (`captures.sandbox`), limited and ended as a whole.
"""

import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, TypeVar

from core.errors import AppError

LOG = logging.getLogger("warpboard.reading")
AT_ONCE = 2
"""Reading a large file takes about 1 GB of memory, and two cores some of the time."""
LARGE_BYTES = 16 << 20
"""A smaller file is read before a process is forked for it and has passed its tables on."""

_T = TypeVar("_T")


def num_at_once(paths: Sequence[Path]) -> int:
    """Return how many of these captures are to be read at a time."""
    num_large = 0
    for path in paths:
        with suppress(OSError):
            num_large += path.stat().st_size >= LARGE_BYTES
    return max(1, min(AT_ONCE, num_large, len(os.sched_getaffinity(0))))


def results_of(tasks: Sequence[Callable[[], _T]], at_once: int) -> list[_T | AppError]:
    """Call every task, so many at a time; return what each returned or its AppError, in order.

    Any other exception is raised, and ChildProcessError for a process that died.
    """
    if at_once < 2:
        return [_result(task) for task in tasks]
    results: dict[int, _T | AppError] = {}
    waiting = list(enumerate(tasks))[::-1]
    running: dict[Connection, tuple[int, ForkProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                number, task = waiting.pop()
                answers, process = _started(task)
                running[answers] = number, process
            for ready in [c for c in wait(list(running)) if isinstance(c, Connection)]:
                results[running[ready][0]] = _received(ready)
                running.pop(ready)[1].join()
    finally:
        for _, process in running.values():
            process.kill()
            process.join()
    return [results[number] for number in range(len(tasks))]


def _result(task: Callable[[], _T]) -> _T | AppError:
    try:
        return task()
    except AppError as exc:
        return exc


@dataclass(frozen=True, slots=True)
class _Failure:
    error: Exception


def _started(task: Callable[[], object]) -> tuple[Connection, ForkProcess]:
    context = multiprocessing.get_context("fork")
    answers, ours = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(task, ours), daemon=True)
    process.start()
    ours.close()
    return answers, process


def _answer(task: Callable[[], object], answers: Connection) -> None:
    """Send the result of a task; what goes wrong in the process is raised in the one before it."""
    try:
        answers.send(_result(task))
    except MemoryError as exc:
        answers.send(_Failure(MemoryError(*map(str, exc.args))))
    except Exception as exc:
        LOG.exception("a process that reads one of several captures")
        answers.send(_Failure(RuntimeError(f"{type(exc).__name__}: {exc}")))


def _received(answers: Connection) -> Any:
    with answers:
        try:
            answer = answers.recv()
        except EOFError:
            raise ChildProcessError("a process that read a capture died") from None
    if isinstance(answer, _Failure):
        raise answer.error
    return answer
