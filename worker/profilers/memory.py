"""The allocator's history: the program writes PyTorch's CUDA memory snapshot itself."""

from collections.abc import Mapping
from typing import Any

from worker.profilers.from_program import collect
from worker.profilers.spec import Collected, PassContext, ProfilerSpec
from worker.tools import Tool


def _command(context: PassContext) -> list[str]:
    return context.program()


def _captures(context: PassContext, result: Mapping[str, Any] | None) -> Collected:
    return collect(context, result, kind="memory_snapshot", suffix="pickle")


PROFILER = ProfilerSpec(
    name="memory",
    needs_tool=False,
    probe=lambda: Tool(name="torch"),
    command=_command,
    captures=_captures,
)
