"""One tool a file, each with a `PROFILER`: whether it runs here, its command, what it leaves."""

from worker.profilers.clean import PROFILER as CLEAN
from worker.profilers.memory import PROFILER as MEMORY
from worker.profilers.ncu import PROFILER as NCU
from worker.profilers.nsys import PROFILER as NSYS
from worker.profilers.spec import ProfilerSpec
from worker.profilers.trace import PROFILER as TRACE

PROFILERS: dict[str, ProfilerSpec] = {p.name: p for p in (CLEAN, NSYS, NCU, MEMORY, TRACE)}
"""By the name of their pass."""
