"""The event model: the few tables that every capture with a timeline is turned into.

A loader per format (`readers/nsys`, `readers/torch_trace`) ends here. Attribution, gaps, phases,
steps, operators, ranks, summaries and spans are computed from these tables alone, so a rule holds
for every format. Columns are numpy arrays of equal length; times are integer ns on the capture's
own clock and may be negative. MISSING (-1) means "not recorded" in every integer column but
the times; it is never a measured value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]

MISSING = -1


class OpKind(IntEnum):
    """What a GPU operation is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    GRAPH = 3
    "A whole CUDA graph launch whose kernels were not recorded one by one (opaque)."


class RangeKind(IntEnum):
    """Who opened a host range."""

    ANNOTATION = 0
    "The program: NVTX, `record_function`, `ProfilerStep#N`. Only these are phases."
    OPERATOR = 1
    "A framework operator: `cpu_op` of a PyTorch trace, a range of `emit_nvtx`."
    PYTHON = 2
    "A Python function, from a trace recorded with stacks."
    LIBRARY = 3
    "A library around its own calls: NCCL, cuBLAS, cuDNN."


class Columns:
    """Base of the tables: equal-length arrays that are cut and reordered together."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Return the chosen rows, by index, mask or slice."""
        names = [f.name for f in fields(self)]  # type: ignore[arg-type]
        return type(self)(**{name: getattr(self, name)[rows] for name in names})


TableT = TypeVar("TableT", bound=Columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOps(Columns):
    """Operations on GPUs, in order of start; at equal starts in order of kind."""

    start_ns: Int64s
    end_ns: Int64s
    kind: NDArray[np.int8]
    "OpKind."
    label: Int32s
    "Row of `Trace.labels`: name and launch configuration, or the direction of a copy."
    device: Int32s
    "The GPU as the capture numbers GPUs, unique over all processes of the capture."
    stream: Int32s
    process: Int32s
    "Row of `Sources.processes`; MISSING where the capture does not say."
    launch: Int64s
    "Row of `Trace.host_calls` that launched it; MISSING where no launch was recorded."
    num_bytes: Int64s
    "Of copies and memory sets; MISSING for kernels, graphs and unknown sizes."
    graph_node: Int64s
    "Id of the CUDA graph node that it was launched from, else MISSING."

    @property
    def runs_kernels(self) -> Bools:
        """Return which operations are a kernel or a whole graph of them."""
        return (self.kind == OpKind.KERNEL) | (self.kind == OpKind.GRAPH)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpLabel:
    """What distinct GPU operations have in common."""

    name: str
    "Demangled kernel name; `CUDA graph launch`; the kind of a copy (`HtoD`, `memset`, ...)."
    short_name: str | None = None
    "As the capture has it; None where it has none."
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    "Static and dynamic shared memory of a block."
    src: str | None = None
    "Of a copy: pageable, pinned, device or managed."
    dst: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls(Columns):
    """Calls of the CUDA (HIP, XPU) runtime and driver, in order of start."""

    start_ns: Int64s
    end_ns: Int64s
    name: Int32s
    "Row of `Trace.names`, without version suffix (`_v7000`)."
    thread: Int32s
    "Row of `Sources.threads`."
    correlation: Int64s
    "As recorded, unique within a process only; MISSING where 0 or absent."
    is_failed: Bools
    "It returned an error; `not ready` of a query is an answer, not an error."


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRanges(Columns):
    """Closed intervals on host threads, sorted by thread, then start, then the longer first."""

    start_ns: Int64s
    end_ns: Int64s
    thread: Int32s
    name: Int32s
    "Row of `Trace.names`; of an operator without its attributes (`aten::mm`, not `aten::mm, seq`)."
    kind: NDArray[np.int8]
    "RangeKind."
    parent: Int32s
    "Row of the innermost range of the same thread that contains this one whole; MISSING if none."
    depth: Int32s
    "0 for a range without parent."
    sequence: Int64s
    "Autograd's sequence number: ties a backward node to its forward operator; else MISSING."
    detail: Int32s
    "Row of `Trace.names`: an operator's input shapes as text; MISSING where not recorded."


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations(Columns):
    """Memory events of the driver or of an allocator, in order of time."""

    time_ns: Int64s
    num_bytes: Int64s
    "Positive for an allocation, negative for a release."
    address: NDArray[np.uint64]
    device: Int32s
    process: Int32s
    memory: NDArray[np.int8]
    "0 device, 1 pinned, 2 pageable, 3 managed."
    allocated_bytes: Int64s
    reserved_bytes: Int64s
    "In use and held after the event, as the allocator itself counts; MISSING where it does not."


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives(Columns):
    """What was recorded of the arguments of collectives, beside the kernels that carry them out.

    A row stands for a GPU operation or for the host's call (`record_param_comms`); PyTorch may
    record both.
    """

    op: Int64s
    "Row of `Trace.gpu_ops`; MISSING in the host's record."
    host_range: Int64s
    "Row of `Trace.host_ranges` of the host's record; MISSING in the GPU's."
    name: Int32s
    "Row of `Trace.names`, as recorded: `allreduce`, `_allgather_base`, `send`."
    element_type: Int32s
    "Row of `Trace.names`, as recorded: `Float`, `BFloat16`."
    num_elements_in: Int64s
    num_elements_out: Int64s
    "Elements of this rank's input and output."
    group: Int32s
    "Row of `Trace.names`: name of the process group."
    group_description: Int32s
    "Row of `Trace.names`: what the program calls the group (`default_pg`, `mesh_tp`)."
    group_size: Int64s
    ranks: Int32s
    "Row of `Trace.names`: the group's ranks as recorded; PyTorch shortens long lists with `...`."
    first_rank: Int64s
    rank_stride: Int64s
    "The group's ranks where they are evenly spaced: first + stride * 0 .. group_size - 1."
    src_rank: Int64s
    dst_rank: Int64s
    "Peers of a point-to-point transfer."
    sequence: Int64s
    "Number of the collective in its group; equal on all ranks."


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the capture."""

    pid: int | str
    "As recorded; a text where a tool that merged ranks made it one."
    name: str | None = None
    rank: int | None = None
    "Rank in its job, from `distributedInfo`, an environment variable or a merged pid."


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A host thread of the capture."""

    process: int
    "Row of `Sources.processes`."
    tid: int | str
    name: str | None = None
    is_autograd: bool = False
    "It runs PyTorch's autograd engine: it launches backward kernels and opens no range itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the events come from."""

    processes: tuple[Process, ...] = ()
    threads: tuple[Thread, ...] = ()
    devices: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    "Device -> name, uuid hash, SMs, ... as far as the capture says."
    utc_origin_ns: int | None = None
    "UTC time [ns since 1970] of the capture's time 0; None where it does not say."
    world_size: int | None = None
    "Ranks of the job, of which the capture may hold one; None where it does not say."
    session_start_ns: int = 0
    session_end_ns: int | None = None
    "Start and end of the recording on the capture's clock; None if not stated."

    def thread_ids(self) -> Int64s:
        """Return the number of each thread: its own, else its place."""
        tids = enumerate(thread.tid for thread in self.threads)
        return np.array([tid if isinstance(tid, int) else i for i, tid in tids], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtraces:
    """Call stacks of the host as a tree of frames, where the capture recorded any."""

    parent: Int64s
    "Row of the frame that called it; MISSING at the top. A parent comes before what it calls."
    name: Int64s
    "Row of `Trace.names`."
    of_call: Int64s
    "The innermost frame of each host call, MISSING without; one more, MISSING, at the end."
    sample_ns: Int64s
    "When a thread was sampled, in order."
    sample_thread: Int32s
    sample_frame: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything that one capture's timeline holds."""

    gpu_ops: GpuOps
    host_calls: HostCalls
    host_ranges: HostRanges
    allocations: Allocations
    labels: tuple[OpLabel, ...]
    names: tuple[str, ...]
    sources: Sources
    collectives: Collectives = field(default_factory=lambda: empty_columns(Collectives))
    backtraces: Backtraces | None = None
    "None where no call stacks were recorded."

    def text(self, codes: Int32s) -> list[str | None]:
        """Return the texts of some codes into `names`; None for MISSING."""
        return [self.names[c] if c >= 0 else None for c in codes.tolist()]

    def thread_process(self) -> Int32s:
        """Return the process of each thread; one more, MISSING, at the end for MISSING threads."""
        rows = [t.process for t in self.sources.threads]
        return np.array([*rows, MISSING], np.int32)


def empty_columns(table: type[TableT]) -> TableT:
    """Return a table of the kind without rows."""
    return make_columns(table, 0)


def make_columns(table: type[TableT], num_rows: int, **given: Any) -> TableT:
    """Return a table from some columns; the others are MISSING (times 0, flags false)."""
    kinds: dict[str, Any] = {
        "kind": np.int8,
        "memory": np.int8,
        "address": np.uint64,
        "is_failed": np.bool_,
        **dict.fromkeys(("label", "device", "stream", "process", "name", "thread"), np.int32),
        **dict.fromkeys(("parent", "depth", "detail"), np.int32),
        **dict.fromkeys(("element_type", "group", "group_description", "ranks"), np.int32),
    }
    zero = {"start_ns", "end_ns", "time_ns", "kind", "memory", "address", "is_failed", "depth"}
    columns: dict[str, NDArray[Any]] = {}
    for column in fields(table):  # type: ignore[arg-type]
        dtype = kinds.get(column.name, np.int64)
        fill = 0 if column.name in zero else MISSING
        values: Any = given.get(column.name)
        if values is None:
            values = np.full(num_rows, fill, dtype)
        columns[column.name] = np.asarray(values, dtype)
        if len(columns[column.name]) != num_rows:
            raise ValueError(f"{column.name} has {len(columns[column.name])} rows, not {num_rows}")
    return table(**columns)
