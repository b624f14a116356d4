"""The states of a run and the one table of allowed moves."""

from enum import StrEnum


class RunStatus(StrEnum):
    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "running"
    INGESTING = "ingesting"
    DONE = "done"
    OOM = "oom"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


_S = RunStatus

MOVES: dict[RunStatus, frozenset[RunStatus]] = {
    _S.QUEUED: frozenset({_S.CLAIMED, _S.CANCELLED, _S.FAILED, _S.INTERRUPTED}),
    _S.CLAIMED: frozenset({_S.RUNNING, _S.CANCELLED, _S.FAILED, _S.INTERRUPTED}),
    _S.RUNNING: frozenset({_S.INGESTING, _S.CANCELLED, _S.FAILED, _S.INTERRUPTED}),
    _S.INGESTING: frozenset({_S.DONE, _S.OOM, _S.FAILED, _S.INTERRUPTED, _S.CANCELLED}),
    # A bundle that a worker kept while it was away may still arrive after the run was given up.
    _S.INTERRUPTED: frozenset({_S.QUEUED, _S.INGESTING}),
    _S.FAILED: frozenset({_S.QUEUED}),
    _S.CANCELLED: frozenset({_S.QUEUED}),
    _S.OOM: frozenset({_S.QUEUED}),
    _S.DONE: frozenset(),
}
"""What each state may become. `db.lifecycle.move` checks it inside the UPDATE."""

FINAL = frozenset({_S.DONE, _S.OOM, _S.FAILED, _S.CANCELLED, _S.INTERRUPTED})
ACTIVE = frozenset(RunStatus) - FINAL


def sources_of(target: RunStatus) -> tuple[RunStatus, ...]:
    """Return the states that may move to `target`."""
    return tuple(s for s, targets in MOVES.items() if target in targets)


class Pass(StrEnum):
    """One execution of the workload under one tool (or none)."""

    CLEAN = "clean"
    NSYS = "nsys"
    NCU = "ncu"
    MEMORY = "memory"
    TRACE = "trace"


KERNEL_PASS_ORDER = (Pass.NSYS, Pass.TRACE)
"""Which pass a run's kernels, phases and API calls are shown from: the first one present."""

PROFILER_PASSES = (Pass.NSYS, Pass.NCU, Pass.MEMORY, Pass.TRACE)
