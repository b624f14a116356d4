"""The PyTorch profiler: the program writes a trace of operators and kernels itself."""

from collections.abc import Mapping
from typing import Any

from worker.profilers.from_program import collect
from worker.profilers.spec import Collected, PassContext, ProfilerSpec
from worker.tools import Tool


def _command(context: PassContext) -> list[str]:
    return context.program()


def _captures(context: PassContext, result: Mapping[str, Any] | None) -> Collected:
    return collect(context, result, kind="torch_trace", suffix="json.gz")


PROFILER = ProfilerSpec(
    name="trace",
    needs_tool=False,
    probe=lambda: Tool(name="torch"),
    command=_command,
    captures=_captures,
)
