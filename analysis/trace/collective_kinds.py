"""Kinds of collectives: by which names they are known, and what each counts of its bytes.

Bandwidth is what NCCL's own tests report
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): algorithm bandwidth is the
size over the time, and bus bandwidth multiplies it by a factor of the kind and of the number of
ranks n, so that it compares with a link's peak whatever n is.
"""

import re
from collections.abc import Sequence

KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
    "unknown",
)
POINT_TO_POINT = "send_recv"
SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Kinds in which no rank can finish before every rank has started."""

_WORDS: Sequence[tuple[str, str]] = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("crossdevicereduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
    ("p2p", "send_recv"),
)
"""Word in a name without `_`, lower case -> kind; the first that occurs counts."""
_NOT_LETTERS = re.compile(r"[^a-z0-9]+")

ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "complexfloat"), 8),
}
"""Element type as recorded (without `_`, lower case) -> bytes."""


def kind_of(name: str) -> str:
    """Return the kind of collective that a kernel's or a call's name says, or `unknown`."""
    plain = _NOT_LETTERS.sub("", name.lower())
    return next((kind for word, kind in _WORDS if word in plain), "unknown")


def bus_factor(kind: str, num_ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth."""
    if kind == "all_reduce":
        return 2 * (num_ranks - 1) / num_ranks
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (num_ranks - 1) / num_ranks
    return 1.0


def element_bytes(name: str | None) -> int | None:
    """Return the size of an element type as PyTorch or NCCL calls it; None if unknown."""
    return ELEMENT_BYTES.get(_NOT_LETTERS.sub("", (name or "").lower()))
