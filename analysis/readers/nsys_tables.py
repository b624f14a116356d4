"""Turn the loaded arrays into the frames and the spans of `analysis.tables`."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.readers.nsys_calls import NOT_READY, OK, OLD_NOT_READY, ApiCalls
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import MEMSET, GpuOps
from analysis.readers.nsys_names import api_name
from analysis.tables import API_CALL_COLUMNS, KERNEL_COLUMNS, TRANSFER_COLUMNS, empty

GRAPH_NAME = "CUDA graph launch"
"""The name of an opaque launch: its kernels were not recorded."""
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoD",
    4: "DtoH",
    5: "DtoD",
    6: "DtoD",
    7: "DtoD",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "unified",
    12: "unified",
    13: "unified",
}
"""CUPTI's copyKind; arrays (3 to 7) live on the device."""
MEMORY_KINDS = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "device",
    4: "managed",
    5: "device",
    6: "managed",
}
_WAITS = re.compile(
    r"Synchronize|^cudaMemcpy(2D|3D|Peer|3DPeer)?(ToArray|FromArray|ArrayToArray|ToSymbol|FromSymbol)?$"
    r"|^cuMemcpy(?!.*Async)"
)
_LAUNCHES = re.compile(r"^(cuda|cu)(Graph)?Launch")


def kernel_names(kernels: GpuOps, names: Mapping[int, str]) -> tuple[list[str], list[str]]:
    """Return the full and the short name of each launch shape."""
    full, short = [], []
    for name_id, short_id in kernels.shapes[:, :2].tolist():
        unknown = f"unknown kernel (name id {max(name_id, short_id)})"
        full.append(names.get(name_id) or names.get(short_id) or unknown)
        short.append(names.get(short_id) or full[-1])
    return full, short


def dimensions(kernels: GpuOps) -> tuple[list[str | None], list[str | None]]:
    """Return grid and block of each launch shape as "x,y,z"; None where one is not recorded."""

    def text(values: list[int]) -> str | None:
        return None if min(values) < 0 else ",".join(map(str, values))

    rows = kernels.shapes.tolist()
    return [text(r[2:5]) for r in rows], [text(r[5:8]) for r in rows]


def kernels_frame(kernels: GpuOps, graphs: GpuOps, names: Mapping[int, str]) -> pd.DataFrame:
    """Return one row for each (name, grid, block), and one for all opaque graph launches."""
    full, short = kernel_names(kernels, names)
    grid, block = dimensions(kernels)
    keys = list(zip(full, grid, block, strict=True))
    group_of = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    group = np.array([group_of[key] for key in keys], np.int64)
    sums = kernels.sums.merged(group, len(group_of))
    first = np.unique(group, return_index=True)[1].tolist()
    frame = pd.DataFrame(
        {
            "name": [key[0] for key in group_of],
            "short_name": [short[i] for i in first],
            "grid": [key[1] for key in group_of],
            "block": [key[2] for key in group_of],
            "registers": _shared_value(kernels.shapes[:, 8], group, len(group_of)),
            "shared_bytes": _shared_value(_shared_bytes(kernels), group, len(group_of)),
            "count": sums.count,
            "total_ns": sums.total,
            "min_ns": sums.least,
            "max_ns": sums.most,
            "is_opaque": np.zeros(len(group_of), bool),
        },
        columns=list(KERNEL_COLUMNS),
    )
    if len(graphs):
        frame = pd.concat([frame, _graph_row(graphs)], ignore_index=True)
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _shared_bytes(kernels: GpuOps) -> Ints:
    static, dynamic = kernels.shapes[:, 9], kernels.shapes[:, 10]
    return np.where((static < 0) | (dynamic < 0), MISSING, static + dynamic)


def _shared_value(values: Ints, group: Ints, size: int) -> pd.arrays.IntegerArray:
    """Return the value that all shapes of a group have; missing where they differ or lack it."""
    least = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(least, group, values)
    most = np.full(size, MISSING, np.int64)
    np.maximum.at(most, group, values)
    return pd.arrays.IntegerArray(np.maximum(most, 0), (least != most) | (most < 0))


def _graph_row(graphs: GpuOps) -> pd.DataFrame:
    sums = graphs.sums
    row = {
        "name": GRAPH_NAME,
        "short_name": GRAPH_NAME,
        "grid": None,
        "block": None,
        "registers": pd.NA,
        "shared_bytes": pd.NA,
        "count": len(graphs),
        "total_ns": int(sums.total.sum()),
        "min_ns": int(sums.least.min()),
        "max_ns": int(sums.most.max()),
        "is_opaque": True,
    }
    frame = pd.DataFrame([row], columns=list(KERNEL_COLUMNS))
    return frame.astype({"registers": "Int64", "shared_bytes": "Int64"})


def is_waiting_call(name: str) -> bool:
    """Say whether the call returns only when the GPU (or a copy) has finished."""
    return _WAITS.search(name) is not None


def is_launch_call(name: str) -> bool:
    """Say whether the call starts a kernel or a graph."""
    return _LAUNCHES.match(name) is not None


def is_failed(calls: ApiCalls, name_of: Mapping[int, str]) -> NDArray[np.bool_]:
    """Say by kind which calls returned an error; "not ready" from a query is an answer."""
    name_id, result = calls.kinds[:, 0], calls.kinds[:, 1]
    is_query = np.array(["Query" in name_of.get(i, "") for i in name_id.tolist()], bool)
    is_answer = is_query & np.isin(result, (NOT_READY, OLD_NOT_READY))
    return (result != OK) & (result != MISSING) & ~is_answer


def api_calls_frame(
    calls: ApiCalls, failed: NDArray[np.bool_], name_of: Mapping[int, str]
) -> pd.DataFrame:
    """Return the host calls by name, longest total first; `failed` is by kind."""
    if len(calls) == 0:
        return empty(API_CALL_COLUMNS)
    ids = calls.kinds[:, 0].tolist()
    texts = [api_name(name_of.get(i, f"unknown call (name id {i})")) for i in ids]
    distinct = list(dict.fromkeys(texts))
    code_of = {text: code for code, text in enumerate(distinct)}
    group = np.array([code_of[t] for t in texts], np.int64)
    sums = calls.sums.merged(group, len(distinct))
    num_failed = np.zeros(len(distinct), np.int64)
    np.add.at(num_failed, group[failed], calls.sums.count[failed])
    frame = pd.DataFrame(
        {
            "name": distinct,
            "count": sums.count,
            "total_ns": sums.total,
            "min_ns": sums.least,
            "max_ns": sums.most,
            "num_failed": num_failed,
            "is_sync": [is_waiting_call(n) for n in distinct],
        },
        columns=list(API_CALL_COLUMNS),
    )
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def transfer_labels(ops: GpuOps) -> list[tuple[str, str | None, str | None]]:
    """Return (kind, source memory, destination memory) of each shape of copies or sets."""
    if ops.kind == MEMSET:
        return [("memset", None, MEMORY_KINDS.get(dst)) for (dst,) in ops.shapes.tolist()]
    return [
        (COPY_KINDS.get(kind, "unknown"), MEMORY_KINDS.get(src), MEMORY_KINDS.get(dst))
        for kind, src, dst in ops.shapes.tolist()
    ]


def transfers_frame(copies: GpuOps, sets: GpuOps) -> pd.DataFrame:
    """Return copies and sets by kind, source and destination memory."""
    rows = []
    for ops in (copies, sets):
        labels = transfer_labels(ops)
        distinct = list(dict.fromkeys(labels))
        if not distinct:
            continue
        group = np.array([distinct.index(label) for label in labels], np.int64)
        sums = ops.sums.merged(group, len(distinct))
        sizes = ops.sizes.merged(group, len(distinct)).total
        has_gap = np.zeros(len(distinct), bool)
        np.logical_or.at(has_gap, group, ops.is_size_unknown)
        for i, label in enumerate(distinct):
            size = pd.NA if has_gap[i] else int(sizes[i])
            rows.append((*label, int(sums.count[i]), size, int(sums.total[i])))
    frame = pd.DataFrame(rows, columns=list(TRANSFER_COLUMNS)).astype({"bytes": "Int64"})
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
