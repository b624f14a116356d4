"""Sort a trace's events into columns: GPU operations, host calls, operators, annotations."""

import re
from array import array
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from captures.opening import clean_text

KERNEL, MEMCPY, MEMSET, RUNTIME, OPERATOR, ANNOTATION, WINDOW = range(7)
"""What an event is; the first three run on the GPU."""
_KINDS = {
    # Names since 2022, then those of 2021; AMD and Intel builds use the same ones.
    **dict.fromkeys(("kernel", "Kernel"), KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy", "memcpy"), MEMCPY),
    **dict.fromkeys(("gpu_memset", "Memset", "memset"), MEMSET),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "runtime", "driver"), RUNTIME),
    **dict.fromkeys(("xpu_runtime", "hip_runtime", "mtia_runtime"), RUNTIME),
    **dict.fromkeys(("cpu_op", "Operator", "operator"), OPERATOR),
    **dict.fromkeys(("user_annotation", "User Annotation"), ANNOTATION),
    "Trace": WINDOW,
}
_IGNORED = frozenset(
    [
        "gpu_user_annotation",
        "python_function",
        "overhead",
        "cuda_sync",
        "cuda_event",
        "ac2g",
        "fwdbwd",
        "async_cpu_to_gpu",
        "cpu_instant_event",
        "Overhead",
        "cuda_profiler_range",
        "gpu_pm_counter",
        "mtia_insight",
        "collective_comm",
        "external_correlation",
        "Python",
        "mtia_counters",
        "forward_backward",
        "cuda_sync_events",
        "xpu_driver",
    ]
)
_STEP = "ProfilerStep#"
"""Steps were operators until 2021; they are ranges."""
_PHASES = frozenset("XBEbeniIsftMCPNODSTFpcvRaG(")
_PLAIN_TIME = re.compile(r"\d{1,16}\.\d{1,3}")
_MAX_NS = 1 << 62
INVALID = -(1 << 63)
MAX_HOST_NS = 7 * 86_400 * 10**9


class Names:
    """Number the distinct values of a column in order of appearance."""

    def __init__(self) -> None:
        self._ids: dict[Any, int] = {}

    def id(self, value: Any) -> int:
        """Return the value's number, a new one for a value not seen before."""
        return self._ids.setdefault(value, len(self._ids))

    @property
    def values(self) -> list[Any]:
        return list(self._ids)


def time_ns(value: Any) -> int:
    """Return microseconds (int, or decimal text) as whole ns, INVALID where it is no time."""
    if type(value) is int:
        return value * 1000 if abs(value) < _MAX_NS // 1000 else INVALID
    if not isinstance(value, str):
        return INVALID
    if _PLAIN_TIME.fullmatch(value):
        whole, _, fraction = value.partition(".")
        return int(whole) * 1000 + int(fraction.ljust(3, "0"))
    try:
        exact = Decimal(value.strip())
    except InvalidOperation:
        return INVALID
    if not exact.is_finite() or exact.adjusted() > 18:
        return INVALID
    ns = int((exact * 1000).to_integral_value())
    return ns if abs(ns) < _MAX_NS else INVALID


class TraceEvents:
    """Columns of everything a trace holds that the tables need."""

    def __init__(self) -> None:
        self.names, self.threads, self.dims, self.streams = Names(), Names(), Names(), Names()
        self.dims.id(None)
        ints = [array("q") for _ in range(10)]
        self.gpu_start, self.gpu_dur, self.gpu_corr, self.gpu_bytes = ints[:4]
        self.run_start, self.run_dur, self.run_corr = ints[4:7]
        self.op_start, self.op_dur = ints[7:9]
        shorts = [array("i") for _ in range(11)]
        self.gpu_kind, self.gpu_name, self.gpu_stream, self.gpu_grid, self.gpu_block = shorts[:5]
        self.gpu_registers, self.gpu_shared = shorts[5:7]
        self.run_name, self.run_thread, self.op_name, self.op_thread = shorts[7:11]
        self.annotations: list[tuple[int, int, int, str]] = []
        self.window: tuple[int, int] | None = None
        self.num_events = 0
        self.num_bad_host = 0
        self.num_bad_gpu = 0
        self.num_not_events = 0
        self.odd_kinds: dict[str, int] = {}
        self.num_shapeless = 0

    def add_all(self, events: Iterable[Any]) -> None:
        """Take in every event; only complete ones (`ph` X) have a duration."""
        kinds = _KINDS
        for event in events:
            self.num_events += 1
            if type(event) is not dict:
                self.num_not_events += 1
                continue
            category = event.get("cat")
            kind = kinds.get(category) if type(category) is str else None
            if kind is None or event.get("ph") != "X":
                self._note_odd(category, kind, event.get("ph"))
                continue
            start, dur = time_ns(event.get("ts")), time_ns(event.get("dur", INVALID))
            args = event.get("args")
            if type(args) is not dict:
                args = {}
            name = event.get("name")
            if type(name) is not str:
                name = "?" if name is None else str(name)
            if kind == OPERATOR and name.startswith(_STEP):
                kind = ANNOTATION
            if kind <= MEMSET:
                self._add_gpu(kind, start, dur, clean_text(name), event, args)
            elif start == INVALID or not 0 <= dur <= MAX_HOST_NS:
                self.num_bad_host += 1
            else:
                self._add_host(kind, start, dur, clean_text(name), event, args)

    def _note_odd(self, category: Any, kind: int | None, phase: Any) -> None:
        """Count what is neither used nor known to be of no use: damage, or a new kind."""
        if type(phase) is not str or phase not in _PHASES:
            odd = f"phase {phase!r:.40}"
        elif (
            kind is None
            and phase == "X"
            and (type(category) is not str or category not in _IGNORED)
        ):
            odd = f"category {category!r:.40}"
        elif kind is not None and kind != WINDOW and phase == "B":
            odd = f"{category} as begin and end pairs"
        elif kind is not None and kind < OPERATOR and phase not in "XE":
            odd = f"{category} of phase {phase}"
        else:
            return
        self.odd_kinds[odd] = self.odd_kinds.get(odd, 0) + 1

    def _add_gpu(
        self,
        kind: int,
        start: int,
        dur: int,
        name: str,
        event: dict[str, Any],
        args: dict[str, Any],
    ) -> None:
        if start == INVALID or dur < 0:
            self.num_bad_gpu += 1
            return
        self.gpu_start.append(start)
        self.gpu_dur.append(dur)
        self.gpu_kind.append(kind)
        self.gpu_name.append(self.names.id(name))
        self.gpu_corr.append(_whole(args.get("correlation"), 62))
        device = _device(args.get("device", event.get("pid")))
        stream = _key(args.get("stream", event.get("tid")))
        rank = rank_of(event.get("pid"))
        self.gpu_stream.append(self.streams.id((device, stream, rank)))
        self.gpu_bytes.append(_whole(args.get("bytes", args.get("Bytes")), 62))
        grid = _dims(args.get("grid"))
        self.num_shapeless += kind == KERNEL and grid is None
        self.gpu_grid.append(self.dims.id(grid))
        self.gpu_block.append(self.dims.id(_dims(args.get("block"))))
        self.gpu_registers.append(_whole(args.get("registers per thread"), 31))
        self.gpu_shared.append(_whole(args.get("shared memory"), 31))

    def _add_host(
        self,
        kind: int,
        start: int,
        dur: int,
        name: str,
        event: dict[str, Any],
        args: dict[str, Any],
    ) -> None:
        if kind == WINDOW:
            end = start + dur
            first, last = self.window or (start, end)
            self.window = (min(first, start), max(last, end))
            return
        thread = self.threads.id((_key(event.get("pid")), _key(event.get("tid"))))
        if kind == RUNTIME:
            self.run_start.append(start)
            self.run_dur.append(dur)
            self.run_corr.append(_whole(args.get("correlation"), 62))
            self.run_name.append(self.names.id(name))
            self.run_thread.append(thread)
        elif kind == OPERATOR:
            self.op_start.append(start)
            self.op_dur.append(dur)
            self.op_name.append(self.names.id(name))
            self.op_thread.append(thread)
        else:
            self.annotations.append((start, dur, thread, name))


def _whole(value: Any, bits: int) -> int:
    """Return a whole number that fits, -1 for anything else."""
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if type(value) is int and 0 <= value < 1 << bits:
        return value
    return -1


def _device(value: Any) -> int:
    return _whole(value, 31)


def _key(value: Any) -> str | int:
    return value if type(value) is int else str(value)


def rank_of(pid: Any) -> str:
    """Return what a tool that merged several ranks put before the process ids; "" for plain ones.

    `[TP01] 4711` -> `[TP01] `: PyTorch itself writes numbers.
    """
    return pid.rstrip("0123456789") if type(pid) is str else ""


def stream_ids(events: TraceEvents) -> list[tuple[int, int]]:
    """Return (device, stream) of each stream number, both of 32 bits, no two alike.

    A device that several ranks call by one number gets a free number in each further rank; a stream
    whose id is no small number (a handle, a text) goes by its place in the file.
    """
    numbers: dict[tuple[int, str], int] = {}
    free = 1 + max((device for device, _, _ in events.streams.values), default=-1)
    found = []
    for place, (device, stream, rank) in enumerate(events.streams.values):
        if (device, rank) not in numbers:
            is_taken = device in numbers.values()
            numbers[device, rank] = free if is_taken else device
            free += is_taken
        number = _device(stream)
        found.append((numbers[device, rank], number if number >= 0 else place))
    return found


def _dims(value: Any) -> str | None:
    if type(value) is list and 0 < len(value) <= 3 and all(type(v) is int for v in value):
        return ",".join(map(str, [*value, 1, 1][:3]))
    return None
