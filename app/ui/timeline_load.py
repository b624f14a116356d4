"""Read a run's spans and ranges from Parquet into arrays ordered by lane and start."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

_TIMES = ("start_ns", "end_ns", "launch_start_ns")
_LANE_FIELDS = ("process", "device", "stream")
_TEXTS = ("kind", "name", "path")
_MOST_COUNTED = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All spans of a run's primary pass, as arrays ordered by lane, then start."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray
    path: np.ndarray
    launch_ns: np.ndarray
    "NaN where the launch is not known."
    lane_bounds: np.ndarray
    "Lane i holds the rows lane_bounds[i] to lane_bounds[i + 1]."
    lanes: tuple[str, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    "kernel, memcpy, memset or graph, one a name."
    paths: tuple[str, ...]
    ranges: pd.DataFrame
    "start_ns, end_ns, row, name."
    range_rows: tuple[str, ...]
    origin_ns: int
    "Time of the first event; times sent to the browser count from here."
    extent_ns: int


def load_timeline(span_paths: tuple[Path, ...]) -> Timeline | None:
    """Read the Parquet files (and their `.ranges.parquet`); None when they hold nothing."""
    parts = [_read_spans(p, i) for i, p in enumerate(span_paths) if p.exists()]
    parts = [p for p in parts if len(p)]
    if not parts:
        return None
    spans = pa.concat_tables(parts, promote_options="permissive") if len(parts) > 1 else parts[0]
    return build_timeline(spans, _read_ranges(span_paths))


def _read_spans(path: Path, capture: int) -> pa.Table:
    """Return one capture's spans; texts stay codes, a million strings are slow."""
    with pq.ParquetFile(path) as file:
        table = file.read(columns=[*_TIMES, *_LANE_FIELDS, *_TEXTS])
    return table.append_column("capture", pa.repeat(pa.scalar(capture, pa.int32()), len(table)))


def _read_ranges(span_paths: tuple[Path, ...]) -> pd.DataFrame:
    found = [p.with_suffix(".ranges.parquet") for p in span_paths]
    frames = [pq.read_table(p).to_pandas() for p in found if p.exists()]
    columns = ["start_ns", "end_ns", "process", "thread", "depth", "name"]
    if not frames:
        return pd.DataFrame({c: [] for c in columns})
    return pd.concat([f[columns] for f in frames], ignore_index=True)


def build_timeline(spans: pa.Table, ranges: pd.DataFrame) -> Timeline:
    """Order spans by lane and start, and replace text by codes."""
    start, end = (spans[c].to_numpy().astype(np.int64, copy=False) for c in ("start_ns", "end_ns"))
    launch = spans["launch_start_ns"].cast("float64").to_numpy()
    lane, fields = _lanes(spans)
    order = _by_lane_and_start(lane, start)
    bounds = np.append(0, np.cumsum(np.bincount(lane)))
    first = bounds[:-1] if isinstance(order, slice) else order[bounds[:-1]]
    lane_keys = pd.DataFrame({name: values[first] for name, values in fields.items()})
    name_codes, names = _codes(spans["name"])
    path_codes, paths = _codes(spans["path"])
    kind_codes, kinds = _codes(spans["kind"])
    origin = int(min(start.min(), ranges["start_ns"].min() if len(ranges) else start.min()))
    last = int(max(end.max(), ranges["end_ns"].max() if len(ranges) else end.max()))
    rows, labelled = _range_rows(ranges)
    kind_of_name = np.zeros(len(names), dtype=np.int64)
    kind_of_name[name_codes] = kind_codes
    return Timeline(
        start_ns=_from(start[order], origin),
        end_ns=_from(end[order], origin),
        name=name_codes[order],
        path=path_codes[order],
        launch_ns=_from(launch[order], origin),
        lane_bounds=bounds,
        lanes=tuple(_lane_label(row, lane_keys) for row in lane_keys.to_dict("records")),
        names=tuple(map(str, names)),
        kinds=tuple(str(kinds[k]) for k in kind_of_name),
        paths=tuple(map(str, paths)),
        ranges=labelled.assign(
            start_ns=labelled["start_ns"] - origin, end_ns=labelled["end_ns"] - origin
        ),
        range_rows=rows,
        origin_ns=origin,
        extent_ns=max(1, last - origin),
    )


def _lanes(spans: pa.Table) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the lane of each span, numbered in the fields' order, and the fields."""
    names = [n for n in ("capture", *_LANE_FIELDS) if n in spans.column_names]
    fields = {name: spans[name].fill_null(-1).to_numpy() for name in names}
    lane = np.zeros(len(spans), dtype=np.int32)
    for values in fields.values():
        if values.min() != values.max():
            codes, size = _dense(values)
            lane = _dense(lane * np.int64(size) + codes)[0] if lane.any() else codes
    return lane, fields


def _dense(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the place of each value among the different ones, and how many these are."""
    offset = values - values.min()
    if offset.max() >= _MOST_COUNTED:
        present, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int32), len(present)
    seen = np.bincount(offset) > 0
    return (np.cumsum(seen, dtype=np.int32) - 1)[offset], int(seen.sum())


def _by_lane_and_start(lane: np.ndarray, start: np.ndarray) -> np.ndarray | slice:
    """Return the order by lane, then start; spans are stored by start, which spares a sort."""
    if (start[1:] < start[:-1]).any():
        return np.lexsort((start, lane))
    if (lane[1:] >= lane[:-1]).all():
        return slice(None)
    return np.argsort(lane.astype(np.int16 if lane.max() < 2**15 else np.int32), kind="stable")


def _from(times_ns: np.ndarray, origin_ns: int) -> np.ndarray:
    """Return times that count from the origin; in place where they are a copy already."""
    return np.subtract(times_ns, origin_ns, out=times_ns if times_ns.flags.writeable else None)


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Return a code for each cell (-1 for none) and the texts that codes stand for."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    return whole.indices.fill_null(-1).to_numpy(), whole.dictionary.to_pylist()


def _lane_label(row: Mapping[str, int], lane_keys: pd.DataFrame) -> str:
    parts = [
        f"{column} {row[column]}"
        for column in ("process", "device")
        if lane_keys[column].nunique() > 1
    ]
    return ", ".join([*parts, f"stream {row['stream']}"])


def _range_rows(ranges: pd.DataFrame) -> tuple[tuple[str, ...], pd.DataFrame]:
    """Give each (process, thread, depth) a row; label the first row of a thread."""
    columns = ["start_ns", "end_ns", "row", "name"]
    if ranges.empty:
        return (), pd.DataFrame({c: [] for c in columns})
    keys = ["process", "thread", "depth"]
    table = ranges[keys].drop_duplicates().sort_values(keys).reset_index(drop=True)
    table["row"] = np.arange(len(table))
    first = ~table.duplicated(["process", "thread"])
    labels = tuple(
        f"thread {thread}" if is_first else ""
        for thread, is_first in zip(table["thread"], first, strict=True)
    )
    return labels, ranges.merge(table, on=keys, how="left")[columns].sort_values("start_ns")
