"""The tabs of a run by title; only the open one is computed."""

from collections.abc import Callable, Mapping

from analysis.runview import RunView
from app.ui.run.advice import advice
from app.ui.run.counters import counters
from app.ui.run.files import environment, files, reproduce
from app.ui.run.host import host
from app.ui.run.kernels import kernels, timeline
from app.ui.run.memory import memory, samples
from app.ui.run.operators import operators, stacks
from app.ui.run.phases import phases
from app.ui.run.ranks import ranks
from app.ui.run.steps import steps
from core.states import RunStatus

Tabs = Mapping[str, Callable[[RunView], None]]
TABS: Tabs = {
    "Kernels": kernels,
    "Advice": advice,
    "Steps": steps,
    "Operators": operators,
    "Stacks": stacks,
    "Phases": phases,
    "Timeline": timeline,
    "Ranks": ranks,
    "Memory": memory,
    "API and transfers": host,
    "Counters and roofline": counters,
    "Samples": samples,
    "Environment": environment,
    "Files": files,
    "Reproduce": reproduce,
}
_WITHOUT_RESULT = ("Environment", "Reproduce")


def tabs_of(view: RunView) -> Tabs:
    """Return the tabs of a run: of one that left nothing, what it was to do."""
    if has_result(view):
        return TABS
    return {name: TABS[name] for name in _WITHOUT_RESULT}


def has_result(view: RunView) -> bool:
    """Say whether a run left anything: one that failed early has neither samples nor captures."""
    is_good = view.run.status in (RunStatus.DONE, RunStatus.OOM)
    return is_good or not (view.captures.empty and view.samples.empty)
