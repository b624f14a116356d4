"""What GPU operations are called among the single operations and in tables."""

from analysis.trace.model import OpKind, OpLabel

GRAPH_NAME = "CUDA graph launch"
"""The name of an opaque launch: its kernels were not recorded."""


def dims_text(dims: tuple[int, int, int] | None) -> str | None:
    """Return a grid or block as tables have it: "x,y,z"."""
    return None if dims is None else ",".join(map(str, dims))


def transfer_name(label: OpLabel, kind: OpKind) -> str:
    """Return what a copy or memory set is called among the single operations."""
    return f"memcpy {label.name}" if kind == OpKind.MEMCPY else "memset"
