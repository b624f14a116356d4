"""Sort a trace's events into columns as they stream by, a few thousand events at a time."""

import json
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from marshal import dumps, loads
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.trace.flops import WITH_VALUES
from analysis.trace.model import MISSING, Int32s, Int64s
from captures.opening import clean_text

KERNEL, MEMCPY, MEMSET, CALL, OPERATOR, ANNOTATION, FUNCTION, WINDOW, MEMORY = range(9)
"""What an event is; the first three ran on the GPU."""
_KINDS = {
    # Names since 2022, then those of 2021; AMD and Intel builds use the same ones.
    **dict.fromkeys(("kernel", "Kernel"), KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy", "memcpy"), MEMCPY),
    **dict.fromkeys(("gpu_memset", "Memset", "memset"), MEMSET),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "runtime", "driver"), CALL),
    **dict.fromkeys(("xpu_runtime", "hip_runtime", "mtia_runtime"), CALL),
    **dict.fromkeys(("cpu_op", "Operator", "operator"), OPERATOR),
    **dict.fromkeys(("user_annotation", "User Annotation"), ANNOTATION),
    **dict.fromkeys(("python_function", "Python"), FUNCTION),
    "Trace": WINDOW,
}
_IGNORED = frozenset(
    [
        "gpu_user_annotation",
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
        "mtia_counters",
        "forward_backward",
        "cuda_sync_events",
        "xpu_driver",
    ]
)
_PHASES = frozenset("XBEbeniIsftMCPNODSTFpcvRaG(")
_BATCH_EVENTS = 1024
_MAX_NS = 1 << 62
INVALID = -(1 << 63)
MAX_HOST_NS = 7 * 86_400 * 10**9
_MAX_NAME_CHARS = 1 << 16
_MAX_SHAPES_BYTES = 1 << 20
"""Of one operator's inputs: an optimizer gets thousands of tensors, ten bytes each or so."""
_MANY_KEYS = 2_000
_COLLECTIVE = "Collective name"
_COLLECTIVE_TEXTS = {
    "name": _COLLECTIVE,
    "element_type": "dtype",
    "group": "Process Group Name",
    "group_description": "Process Group Description",
    "ranks": "Process Group Ranks",
}
_COLLECTIVE_NUMBERS = {
    "num_elements_in": "In msg nelems",
    "num_elements_out": "Out msg nelems",
    "group_size": "Group size",
    "first_rank": "Global rank start",
    "rank_stride": "Global rank stride",
    "src_rank": "Src Rank",
    "dst_rank": "Dst Rank",
    "sequence": "Seq",
}

Fields = dict[str, Any]
Column = NDArray[Any]


class Codes:
    """Number distinct values in order of appearance."""

    def __init__(self) -> None:
        self._ids: dict[Hashable, int] = {}

    def code(self, value: Hashable) -> int:
        """Return the value's number, a new one for a value not seen before."""
        return self._ids.setdefault(value, len(self._ids))

    def codes(self, values: Sequence[Any]) -> Int32s:
        """Return the number of each value; an unhashable one is keyed by its text.

        Where there are many distinct values, large integers do too: Python hashes them modulo a
        prime, so a crafted file could give thousands of them one hash.
        """
        ids = self._ids
        if len(ids) < _MANY_KEYS or set(map(type, values)) <= {str, bytes}:
            try:
                return np.array([ids.setdefault(v, len(ids)) for v in values], np.int32)
            except TypeError:
                pass
        return np.array([self.code(_as_key(v)) for v in values], np.int32)

    @property
    def values(self) -> list[Any]:
        return list(self._ids)


def time_ns(value: Any) -> int:
    """Return microseconds (int, or decimal text) as whole ns, INVALID where it is not a time."""
    if type(value) is int:
        return value * 1000 if abs(value) < _MAX_NS // 1000 else INVALID
    if not isinstance(value, str):
        return INVALID
    try:
        exact = Decimal(value.strip())
    except InvalidOperation:
        return INVALID
    if not exact.is_finite() or exact.adjusted() > 18:
        return INVALID
    ns = int((exact * 1000).to_integral_value())
    return ns if abs(ns) < _MAX_NS else INVALID


def times_ns(values: list[Any]) -> Int64s:
    """Return `time_ns` of each value; decimal texts of at most three places go the fast way."""
    try:
        exact = pa.array(values, pa.string()).cast(pa.decimal128(38, 3))
    except (pa.ArrowException, TypeError):
        return np.array([time_ns(v) for v in values], np.int64)
    words = np.frombuffer(exact.buffers()[1], np.int64)[: 2 * len(values)].reshape(-1, 2)
    is_time = (words[:, 1] == words[:, 0] >> 63) & (np.abs(words[:, 0]) < _MAX_NS)
    if exact.null_count:
        is_time &= np.array([v is not None for v in values], bool)
    return np.where(is_time, words[:, 0], INVALID)


def _with_values(dims: Any, values: Any) -> Any:
    """Return the shapes of an operator's inputs with stride, padding, ... between them.

    Those stand where an input has no shape, as the text that the profiler writes.
    """
    if not isinstance(values, list) or not isinstance(dims, list) or len(dims) != len(values):
        return dims
    return [dim or str(value) or dim for dim, value in zip(dims, values, strict=True)]


class EventColumns:
    """Columns of everything a trace holds that the event tables need."""

    def __init__(self) -> None:
        self.names = Codes()
        "Of GPU operations, host calls and ranges, and texts of collectives; any value of JSON."
        self.inputs = Codes()
        "Input shapes of operators, marshalled: the quickest key of nested lists."
        self.shapes = Codes()
        "(kind, name, grid, block, registers, shared bytes) of GPU operations."
        self.threads = Codes()
        "(pid, tid, rank) of host events."
        self.streams = Codes()
        "(device, stream, pid, rank) of GPU operations."
        self.process_names: dict[Hashable, str] = {}
        self.thread_names: dict[Hashable, str] = {}
        self.num_events = 0
        self.num_bad_host = 0
        self.num_bad_gpu = 0
        self.num_not_events = 0
        self.odd_kinds: dict[str, int] = {}
        self._pending: list[list[Fields]] = [[] for _ in range(MEMORY + 1)]
        self._chunks: dict[str, list[dict[str, Column]]] = {}
        self._num_rows = dict.fromkeys(("gpu", "range"), 0)

    def add_all(self, events: Iterable[Any]) -> None:
        """Take in every event; only complete ones (`ph` X) have a duration."""
        kinds, pending = _KINDS, self._pending
        for event in events:
            if not event and type(event) is dict:  # JAX closes its lists with an empty one
                continue
            self.num_events += 1
            if type(event) is not dict:
                self.num_not_events += 1
                continue
            category = event.get("cat")
            kind = kinds.get(category) if type(category) is str else None
            phase = event.get("ph")
            if kind is not None and phase == "X":
                pending[kind].append(event)
                if len(pending[kind]) == _BATCH_EVENTS:
                    self._flush(kind)
            elif phase == "i" and event.get("name") == "[memory]":
                pending[MEMORY].append(event)
                if len(pending[MEMORY]) == _BATCH_EVENTS:
                    self._flush(MEMORY)
            elif phase == "M":
                self._note_name(event)
            else:
                self._note_odd(category, kind, phase)
        self.release()

    def input_shapes(self) -> list[str]:
        """Return the text of each input shape."""
        return [clean_text(json.dumps(loads(shape))) for shape in self.inputs.values]

    def table(self, name: str, template: Sequence[str]) -> dict[str, Column]:
        """Return the columns of a table, whole; `template` names those of an empty one."""
        chunks = self._chunks.get(name, [])
        if not chunks:
            return {column: np.empty(0, np.int64) for column in template}
        return {column: np.concatenate([c[column] for c in chunks]) for column in template}

    def release(self) -> None:
        """Sort the events that wait, whatever their number, so that nothing holds their values."""
        for kind in range(MEMORY + 1):
            self._flush(kind)

    def _flush(self, kind: int) -> None:
        events, self._pending[kind] = self._pending[kind], []
        if not events:
            return
        if kind == MEMORY:
            self._add_memory(events)
            return
        times = times_ns([*_column(events, "ts"), *_column(events, "dur", "x")])
        start, dur = times[: len(events)], times[len(events) :]
        if kind <= MEMSET:
            keep = (start != INVALID) & (dur >= 0)
            self.num_bad_gpu += int((~keep).sum())
        else:
            keep = (start != INVALID) & (dur >= 0) & (dur <= MAX_HOST_NS)
            self.num_bad_host += int((~keep).sum())
        if not keep.all():
            events = [e for e, is_kept in zip(events, keep.tolist(), strict=True) if is_kept]
            start, dur = start[keep], dur[keep]
        columns = {"start": start, "dur": dur}
        args = _args(events)
        if kind <= MEMSET:
            self._add_gpu(kind, columns, events, args)
        elif kind == WINDOW:
            self._append("window", columns)
        else:
            self._add_host(kind, columns, events, args)

    def _append(self, table: str, columns: dict[str, Column]) -> None:
        self._chunks.setdefault(table, []).append(columns)

    def _add_gpu(
        self, kind: int, columns: dict[str, Column], events: list[Fields], args: list[Fields]
    ) -> None:
        columns["name"] = self.names.codes(_names(events))
        columns["correlation"] = _whole([a.get("correlation", -1) for a in args], 62)
        devices = [a.get("device", e.get("pid")) for a, e in zip(args, events, strict=True)]
        streams = [a.get("stream", e.get("tid")) for a, e in zip(args, events, strict=True)]
        places = _column(events, "pid"), _column(args, "rank")
        columns["stream"] = self.streams.codes(
            list(zip(_whole(devices, 31).tolist(), streams, *places, strict=True))
        )
        columns["num_bytes"] = _whole([a.get("bytes", a.get("Bytes", -1)) for a in args], 62)
        shape = (
            [_dims(a.get("grid")) for a in args],
            [_dims(a.get("block")) for a in args],
            _whole([a.get("registers per thread", -1) for a in args], 31).tolist(),
            _whole([a.get("shared memory", -1) for a in args], 31).tolist(),
        )
        names = columns["name"].tolist()
        columns["shape"] = self.shapes.codes(
            list(zip([kind] * len(events), names, *shape, strict=True))
        )
        node = _whole([a.get("graph node id", -1) for a in args], 63)
        columns["graph_node"] = np.where(node > 0, node, MISSING)
        self._append("gpu", columns)
        self._add_collectives("gpu", len(events), args)

    def _add_host(
        self, kind: int, columns: dict[str, Column], events: list[Fields], args: list[Fields]
    ) -> None:
        columns["thread"] = self._threads(events, args)
        columns["name"] = self.names.codes(_names(events))
        if kind == CALL:
            columns["correlation"] = _whole([a.get("correlation", -1) for a in args], 62)
            self._append("call", columns)
            return
        columns["kind"] = np.full(len(events), kind, np.int8)
        columns["sequence"] = np.full(len(events), MISSING, np.int64)
        columns["detail"] = np.full(len(events), MISSING, np.int32)
        if kind == OPERATOR:
            columns["sequence"] = _whole([a.get("Sequence number", -1) for a in args], 62)
            dims = [a.get("Input Dims", a.get("Input dims")) for a in args]
            for row, event in enumerate(events):
                name = event.get("name")
                if isinstance(name, str) and name in WITH_VALUES:
                    dims[row] = _with_values(dims[row], args[row].get("Concrete Inputs"))
            texts = {row: dumps(value, 0) for row, value in enumerate(dims) if value}
            given = [row for row, text in texts.items() if len(text) <= _MAX_SHAPES_BYTES]
            columns["detail"][given] = self.inputs.codes([texts[row] for row in given])
        self._append("range", columns)
        self._add_collectives("range", len(events), args)

    def _add_collectives(self, table: str, num_rows: int, args: list[Fields]) -> None:
        """Keep the arguments of collectives, beside the row of the event that has them."""
        first = self._num_rows[table]
        self._num_rows[table] += num_rows
        rows = [row for row, a in enumerate(args) if _COLLECTIVE in a]
        if not rows:
            return
        chosen = [args[row] for row in rows]
        columns: dict[str, Column] = {"row": np.array(rows, np.int64) + first}
        for column, key in _COLLECTIVE_NUMBERS.items():
            columns[column] = _whole([a.get(key, -1) for a in chosen], 62)
        for column, key in _COLLECTIVE_TEXTS.items():
            texts = [_plain_text(a.get(key)) for a in chosen]
            codes = [self.names.code(text) if text else MISSING for text in texts]
            columns[column] = np.array(codes, np.int32)
        self._append(f"{table}_collectives", columns)

    def _add_memory(self, events: list[Fields]) -> None:
        start = times_ns(_column(events, "ts"))
        args = _args(events)
        size = _signed([a.get("Bytes", 0) for a in args])
        keep = (start != INVALID) & (size != 0)
        columns: dict[str, Column] = {
            "start": start,
            "num_bytes": size,
            "address": _signed([a.get("Addr", 0) for a in args]),
            "device": _whole([a.get("Device Id", -1) for a in args], 31),
            "device_type": _whole([a.get("Device Type", -1) for a in args], 31),
            "allocated_bytes": _whole([a.get("Total Allocated", -1) for a in args], 62),
            "reserved_bytes": _whole([a.get("Total Reserved", -1) for a in args], 62),
            "thread": self._threads(events, args),
        }
        self._append("memory", {name: values[keep] for name, values in columns.items()})

    def _threads(self, events: list[Fields], args: list[Fields]) -> Int32s:
        columns = _column(events, "pid"), _column(events, "tid"), _column(args, "rank")
        return self.threads.codes(list(zip(*columns, strict=True)))

    def _note_name(self, event: Fields) -> None:
        """Keep the name of a process or thread."""
        name = _args([event])[0].get("name")
        if not isinstance(name, str) or not name.strip():
            return
        pid, tid = event.get("pid"), event.get("tid")
        if not isinstance(pid, int | str) or not isinstance(tid, int | str | None):
            return
        if event.get("name") == "process_name":
            self.process_names.setdefault(pid, clean_text(name))
        elif event.get("name") == "thread_name":
            self.thread_names.setdefault((pid, tid), clean_text(name))

    def _note_odd(self, category: Any, kind: int | None, phase: Any) -> None:
        """Count what is neither used nor known to be of no use: damage, or a new kind."""
        if type(phase) is not str or phase not in _PHASES:
            odd = f"phase {phase!r:.40}"
        elif kind is None:
            if phase != "X" or (type(category) is str and category in _IGNORED):
                return
            odd = f"category {category!r:.40}"
        elif kind != WINDOW and phase == "B":
            odd = f"{category} as begin and end pairs"
        elif kind < OPERATOR and phase not in "XE":
            odd = f"{category} of phase {phase}"
        else:
            return
        self.odd_kinds[odd] = self.odd_kinds.get(odd, 0) + 1


def _column(events: list[Fields], key: str, otherwise: Any = None) -> list[Any]:
    """Return one field of each event; the fast way where all have it."""
    try:
        return list(map(itemgetter(key), events))
    except KeyError:
        return [e.get(key, otherwise) for e in events]


def _names(events: list[Fields]) -> list[Any]:
    """Return the names; None for a list or an object, and no more of a text than a name has."""
    names = _column(events, "name")
    if set(map(type, names)) == {str} and max(map(len, names)) <= _MAX_NAME_CHARS:
        return names
    texts = [n[:_MAX_NAME_CHARS] if isinstance(n, str) else n for n in names]
    return [n if isinstance(n, str | int) else None for n in texts]


def _args(events: list[Fields]) -> list[Fields]:
    args = _column(events, "args")
    if set(map(type, args)) == {dict}:
        return args
    return [a if type(a) is dict else {} for a in args]


def _plain_text(value: Any) -> str:
    """Return the text of a text, a number or a list of numbers; "" for any other value."""
    if type(value) is list and not set(map(type, value)) <= {int, str}:
        return ""
    return str(value) if value and type(value) in (str, int, list) else ""


def _as_key(value: Any) -> Hashable:
    """Return the value, with large integers and what cannot be a key as text."""
    if isinstance(value, tuple):
        return tuple(_as_key(v) for v in value)
    if value is None or isinstance(value, str | bytes):
        return value
    is_small = isinstance(value, int) and abs(value) < 1 << 60
    return value if is_small else repr(value)


def _whole(values: list[Any], bits: int) -> Int64s:
    """Return whole numbers that fit, MISSING for anything else."""
    numbers = _signed(values, MISSING)
    return np.where((numbers >= 0) & (numbers >> bits == 0), numbers, MISSING)


def _signed(values: list[Any], otherwise: int = 0) -> Int64s:
    """Return whole numbers of 64 bits, `otherwise` for anything else."""
    if set(map(type, values)) == {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return np.array([_integer(v, otherwise) for v in values], np.int64)


def _integer(value: Any, otherwise: int) -> int:
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if type(value) is int and abs(value) < 1 << 63 else otherwise


def _dims(value: Any) -> tuple[int, int, int] | None:
    if type(value) is list and 0 < len(value) <= 3 and set(map(type, value)) == {int}:
        x, y, z = [*value, 1, 1][:3]
        if min(value) < 0 or max(value) >= 1 << 32:
            return None
        return x, y, z
    return None
