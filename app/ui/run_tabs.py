"""The tabs of a run by title; only the open one is computed."""

from app.ui.run_advice import advice
from app.ui.run_counters import counters
from app.ui.run_files import environment, files, reproduce
from app.ui.run_host import host
from app.ui.run_kernels import kernels, timeline
from app.ui.run_memory import memory, samples
from app.ui.run_operators import operators
from app.ui.run_phases import phases
from app.ui.run_ranks import ranks
from app.ui.run_stacks import stacks
from app.ui.run_steps import steps

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
