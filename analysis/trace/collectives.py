"""The collectives of a capture: which kernels communicate, and what each moved."""

import re
from typing import Any

import numpy as np
import pandas as pd

from analysis.trace.collective_kinds import element_bytes, kind_of
from analysis.trace.model import MISSING, Bools, Int64s, OpKind, Trace
from analysis.trace.nesting import innermost

COMMUNICATION = "collective"
"""The class (`analysis.classify`) of kernels that communicate."""

_CALLER = re.compile(r"(?:nccl|rccl|xccl|ucc|gloo|mpi):\w|c10d::|nccl[A-Z]")
"""What torch.distributed and NCCL call their ranges around a collective."""

COLLECTIVE_COLUMNS = (
    "process",  # int64, row of `Sources.processes`; -1 unknown
    "device",  # int64
    "stream",  # int64
    "start_ns",  # int64
    "end_ns",  # int64
    "kind",  # str, one of KINDS
    "num_bytes",  # Int64, the size by NCCL's definition: the larger of input and output
    "element_type",  # str or None
    "group",  # str or None: the process group, with its ranks where recorded
    "group_size",  # Int64
    "sequence",  # Int64, number of the collective in its group
    "peer",  # Int64, the rank that a send goes to or a receive comes from
    "exposed_ns",  # int64, of its time, what no compute kernel of the device covers
    "step",  # Int64
    "compute_before_ns",  # int64, compute of the device since the collective before ended
    "idle_before_ns",  # int64, idle time of the device since then
    "idle_in",  # str or None: host range in which most of that idle time was spent
    "idle_in_ns",  # int64, how much of it
)
"""One row a communication kernel, in order of start."""


def _kind_or_none(name: str | None) -> str | None:
    kind = kind_of(name) if name is not None else "unknown"
    return None if kind == "unknown" else kind


def is_communication(trace: Trace) -> Bools:
    """Return for each GPU operation whether it is a kernel that communicates."""
    from analysis.classify import classify

    ops = trace.gpu_ops
    of_label = np.array([str(classify(x.name).category) == COMMUNICATION for x in trace.labels])
    if not len(of_label):
        return np.zeros(len(ops), np.bool_)
    of_op: Bools = (ops.kind == OpKind.KERNEL) & of_label[ops.label]
    return of_op


def collective_frame(trace: Trace, ops: Int64s) -> pd.DataFrame:
    """Return COLLECTIVE_COLUMNS of these communication kernels, as far as recorded.

    Exposed time, steps and idle time are not known here: `trace.ranks` fills them.
    """
    gpu = trace.gpu_ops
    row = _argument_rows(trace, ops)
    arguments = _arguments(trace, row)
    names = [trace.labels[i].name for i in gpu.label[ops].tolist()]
    by_label = {name: kind_of(name) for name in set(names)}
    called = _calling_ranges(trace, ops)
    kinds = [
        next((kind for kind in map(_kind_or_none, (given, call)) if kind), by_label[label])
        for given, call, label in zip(arguments.pop("name"), called, names, strict=True)
    ]
    return pd.DataFrame(
        {
            "process": gpu.process[ops].astype(np.int64),
            "device": gpu.device[ops].astype(np.int64),
            "stream": gpu.stream[ops].astype(np.int64),
            "start_ns": gpu.start_ns[ops],
            "end_ns": gpu.end_ns[ops],
            "kind": kinds,
            **arguments,
            "exposed_ns": np.zeros(len(ops), np.int64),
            "step": pd.array([pd.NA] * len(ops), dtype="Int64"),
            "compute_before_ns": np.zeros(len(ops), np.int64),
            "idle_before_ns": np.zeros(len(ops), np.int64),
            "idle_in": pd.Series([None] * len(ops), dtype=object),
            "idle_in_ns": np.zeros(len(ops), np.int64),
        },
        columns=list(COLLECTIVE_COLUMNS),
    )


def _calling_ranges(trace: Trace, ops: Int64s) -> list[str | None]:
    """Return the library's own range or operator around each launch; None where none is open.

    An all-to-all runs as sends and receives: only its caller says what they are for.
    """
    ranges, calls = trace.host_ranges, trace.host_calls
    is_call = np.array([bool(_CALLER.match(name)) for name in trace.names] + [False])
    if not is_call[ranges.name].any():
        return [None] * len(ops)
    launch = trace.gpu_ops.launch[ops]
    thread = np.append(calls.thread, MISSING)[launch]
    row = innermost(ranges, thread, np.append(calls.start_ns, 0)[launch]).astype(np.int64)
    parent, code = np.append(ranges.parent, MISSING), np.append(ranges.name, MISSING)
    while (is_open := (row >= 0) & ~is_call[code[row]]).any():
        row = np.where(is_open, parent[row], row)
    return trace.text(code[row])


def _argument_rows(trace: Trace, ops: Int64s) -> Int64s:
    """Return the row of `Trace.collectives` of each GPU operation; MISSING where none was recorded.

    The GPU's own record, else the host's whose range encloses the launch.
    """
    row_of_op = np.full(len(trace.gpu_ops) + 1, MISSING, np.int64)
    given = trace.collectives
    on_gpu = np.flatnonzero(given.op >= 0)
    row_of_op[given.op[on_gpu]] = on_gpu
    rows = row_of_op[ops]
    on_host = np.flatnonzero(given.host_range >= 0)
    lacking = np.flatnonzero(rows < 0)
    if not len(on_host) or not len(lacking):
        return rows
    launch = trace.gpu_ops.launch[ops[lacking]]
    calls, ranges = trace.host_calls, trace.host_ranges
    record_of = np.full(len(ranges) + 1, MISSING, np.int64)
    record_of[given.host_range[on_host]] = on_host
    thread = np.append(calls.thread, MISSING)[launch]
    row = innermost(ranges, thread, np.append(calls.start_ns, 0)[launch]).astype(np.int64)
    parent = np.append(ranges.parent, MISSING)
    while (is_open := (row >= 0) & (record_of[row] < 0)).any():
        row = np.where(is_open, parent[row], row)
    rows[lacking] = record_of[row]
    return rows


def _arguments(trace: Trace, row: Int64s) -> dict[str, Any]:
    given = trace.collectives
    known = np.flatnonzero(row >= 0)
    at = row[known]

    def text(column: Any) -> list[str | None]:
        values: list[str | None] = [None] * len(row)
        for place, value in zip(known.tolist(), trace.text(column[at]), strict=True):
            values[place] = value
        return values

    def number(column: Any) -> Any:
        values = np.full(len(row), MISSING, np.int64)
        values[known] = column[at]
        return _nullable(values)

    elements = np.full(len(row), MISSING, np.int64)
    elements[known] = np.maximum(given.num_elements_in[at], given.num_elements_out[at])
    types = text(given.element_type)
    sizes = {t: element_bytes(t) or MISSING for t in set(types)}
    size = np.array([sizes[t] for t in types], np.int64).reshape(len(row))
    groups, members = text(given.group), text(given.ranks)
    return {
        "name": text(given.name),
        "num_bytes": _nullable(np.where((elements >= 0) & (size > 0), elements * size, MISSING)),
        "element_type": pd.Series(types, dtype=object),
        "group": pd.Series(
            [_group(g, m) for g, m in zip(groups, members, strict=True)], dtype=object
        ),
        "group_size": number(given.group_size),
        "sequence": number(given.sequence),
        "peer": number(_peers(trace)),
    }


def _peers(trace: Trace) -> Int64s:
    """Return the other rank of each recorded transfer: of a receive its source."""
    given = trace.collectives
    receives = np.array(["recv" in name.lower() for name in trace.names] + [False])[given.name]
    first = np.where(receives, given.src_rank, given.dst_rank)
    other = np.where(receives, given.dst_rank, given.src_rank)
    return np.where(first >= 0, first, other)


def _group(name: str | None, ranks: str | None) -> str | None:
    """Return one name for a group: subgroups of several ranks may share the recorded one."""
    if name is None and ranks is None:
        return None
    return f"{name or ''} {ranks or ''}".strip()


def _nullable(values: Int64s) -> Any:
    return pd.arrays.IntegerArray(np.maximum(values, 0), values == MISSING)
