"""The tabs of a run by title; only the open one is computed."""

from app.ui.run.advice import advice
from app.ui.run.counters import counters
from app.ui.run.files import environment, files, reproduce
from app.ui.run.host import host
from app.ui.run.kernels import kernels, timeline
from app.ui.run.memory import memory, samples
from app.ui.run.operators import operators
from app.ui.run.phases import phases
from app.ui.run.ranks import ranks
from app.ui.run.stacks import stacks
from app.ui.run.steps import steps

TABS = {
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
