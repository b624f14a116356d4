"""Read a run's spans and ranges from Parquet into arrays ordered by lane and start."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


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
    many = len(parts) > 1
    frame = pd.concat(parts, ignore_index=True) if many else parts[0]
    ranges = _read_ranges(span_paths)
    return build_timeline(frame, ranges)


def _read_spans(path: Path, capture: int) -> pd.DataFrame:
    """Return one capture's spans; text columns stay categories, a million strings are slow."""
    columns = ["start_ns", "end_ns", "device", "stream", "process", "kind", "name", "path"]
    table = pq.read_table(path, columns=[*columns, "launch_start_ns"])
    frame = pd.DataFrame(
        {c: table[c].to_numpy() for c in columns[:5]}
        | {c: _categories(table[c]) for c in columns[5:]}
        | {"launch_start_ns": table["launch_start_ns"].cast("float64").to_numpy()}
    )
    frame["capture"] = capture
    return frame


def _categories(column: pa.ChunkedArray) -> pd.Categorical:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return pd.Categorical.from_codes(codes, whole.dictionary.to_pylist())


def _read_ranges(span_paths: tuple[Path, ...]) -> pd.DataFrame:
    found = [p.with_suffix(".ranges.parquet") for p in span_paths]
    frames = [pq.read_table(p).to_pandas() for p in found if p.exists()]
    columns = ["start_ns", "end_ns", "process", "thread", "depth", "name"]
    if not frames:
        return pd.DataFrame({c: [] for c in columns})
    return pd.concat([f[columns] for f in frames], ignore_index=True)


def build_timeline(frame: pd.DataFrame, ranges: pd.DataFrame) -> Timeline:
    """Order spans by lane and start, and replace text by codes."""
    lane_keys, lane = _lanes(frame)
    start = frame["start_ns"].to_numpy(dtype=np.int64)
    end = frame["end_ns"].to_numpy(dtype=np.int64)
    order = _by_lane_and_start(lane, start)
    name_codes, names = _codes(frame["name"])
    path_codes, paths = _codes(frame["path"])
    kind_codes, kinds = _codes(frame["kind"])
    launch = pd.to_numeric(frame["launch_start_ns"], errors="coerce").to_numpy(dtype=np.float64)
    origin = int(min(start.min(), ranges["start_ns"].min() if len(ranges) else start.min()))
    last = int(max(end.max(), ranges["end_ns"].max() if len(ranges) else end.max()))
    rows, labelled = _range_rows(ranges)
    kind_of_name = np.zeros(len(names), dtype=np.int64)
    kind_of_name[name_codes] = kind_codes
    return Timeline(
        start_ns=start[order] - origin,
        end_ns=end[order] - origin,
        name=name_codes[order].astype(np.int64),
        path=path_codes[order].astype(np.int32),
        launch_ns=(launch - origin)[order],
        lane_bounds=np.searchsorted(lane[order], np.arange(len(lane_keys) + 1)),
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


def _lanes(frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the lanes in order, and the lane of each span."""
    keys = [c for c in ("capture", "process", "device", "stream") if c in frame]
    packed = np.zeros(len(frame), dtype=np.int64)
    for key in keys:
        codes, values = pd.factorize(frame[key].to_numpy(), sort=True)
        packed = packed * (len(values) + 1) + codes
    lane, present = pd.factorize(packed, sort=True)
    first = np.zeros(len(present), dtype=np.int64)
    first[lane[::-1]] = np.arange(len(lane))[::-1]
    return frame[keys].iloc[first].reset_index(drop=True), lane


def _by_lane_and_start(lane: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the order by lane, then start; spans are stored by start, which spares a sort."""
    if len(start) and (start[1:] >= start[:-1]).all():
        return np.argsort(lane.astype(np.int16 if lane.max() < 2**15 else np.int64), kind="stable")
    return np.lexsort((start, lane))


def _codes(column: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Return a code for each cell (-1 for none) and the texts that codes stand for."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(dtype=np.int64), list(column.cat.categories)
    codes, texts = pd.factorize(column)
    return codes.astype(np.int64), list(texts)


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
