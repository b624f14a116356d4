"""The pass that latency comes from: the program alone, no profiler."""

from collections.abc import Mapping
from typing import Any

from worker.profilers.spec import Collected, PassContext, ProfilerSpec
from worker.tools import Tool


def _command(context: PassContext) -> list[str]:
    return context.program()


def _captures(context: PassContext, result: Mapping[str, Any] | None) -> Collected:
    return Collected()


PROFILER = ProfilerSpec(
    name="clean",
    needs_tool=False,
    probe=lambda: Tool(name="none"),
    command=_command,
    captures=_captures,
)
