"""Give the operations of a capture in order of time, a window at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_chunks import time_windows
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, MEMCPY, MEMSET, Codes
from analysis.readers.nsys_launches import GpuWork

_COLUMNS = ("start", "end", "gpu", "stream", "owner", "detail", "call", "first", "last")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Operations of all kinds in order of start; of equal starts, kernels first."""

    kind: NDArray[np.int8]
    start_ns: Ints
    end_ns: Ints
    device: Codes
    stream: Codes
    process: Codes
    "Ordinal, MISSING if unknown."
    detail: Codes
    num_bytes: Ints
    "MISSING for kernels, graphs and unknown sizes."
    call: Codes
    "Kind of the launch call, MISSING where none was recorded."
    first_ns: Ints
    last_ns: Ints
    "When the launch call began and ended; 0 where none was recorded."

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def is_kernel(self) -> NDArray[np.bool_]:
        return self.kind == KERNEL

    @property
    def runs(self) -> NDArray[np.bool_]:
        """Say which operations make the device busy."""
        return (self.kind == KERNEL) | (self.kind == GRAPH)

    def threads(self, calls: ApiCalls) -> Ints:
        """Return the globalTid that launched each operation, MISSING if unknown."""
        return np.append(calls.thread_of_kind, MISSING)[self.call]


def windows(work: GpuWork) -> Iterator[Window]:
    """Give all operations, window after window."""
    for low_ns, high_ns in time_windows([part.rows for part in work.ops]):
        parts = []
        for part in work.ops:
            names = (*_COLUMNS, "bytes") if part.kind in (MEMCPY, MEMSET) else _COLUMNS
            rows = part.rows.between(low_ns, high_ns, names)
            if rows:
                parts.append((part.kind, rows))
        if parts:
            yield _joined(parts)


def _joined(parts: list[tuple[int, dict[str, NDArray[Any]]]]) -> Window:
    start = np.concatenate([rows["start"] for _, rows in parts])
    is_sorted = not (start[1:] < start[:-1]).any()
    order = slice(None) if is_sorted else np.argsort(start, kind="stable")

    def column(name: str) -> NDArray[Any]:
        return np.concatenate([rows[name] for _, rows in parts])[order]

    sizes = [rows.get("bytes", np.full(len(rows["start"]), MISSING, np.int64)) for _, rows in parts]
    kinds = [np.full(len(rows["start"]), kind, np.int8) for kind, rows in parts]
    return Window(
        kind=np.concatenate(kinds)[order],
        start_ns=start[order],
        end_ns=column("end"),
        device=column("gpu"),
        stream=column("stream"),
        process=column("owner"),
        detail=column("detail"),
        num_bytes=np.concatenate(sizes)[order],
        call=column("call"),
        first_ns=column("first"),
        last_ns=column("last"),
    )
