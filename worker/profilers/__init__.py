"""The profilers by pass: whether the tool runs here, its command, and the captures it leaves."""

from worker.profilers.from_program import CLEAN, MEMORY, TRACE
from worker.profilers.ncu import PROFILER as NCU
from worker.profilers.nsys import PROFILER as NSYS
from worker.profilers.spec import ProfilerSpec

PROFILERS: dict[str, ProfilerSpec] = {p.name: p for p in (CLEAN, NSYS, NCU, MEMORY, TRACE)}
"""By the name of their pass."""
