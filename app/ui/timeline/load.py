"""Read a run's spans and ranges from Parquet into arrays ordered by lane and start."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.span_file import is_whole

_TIMES = ("start_ns", "end_ns", "launch_start_ns")
_LANE_FIELDS = ("process", "device", "stream")
_TEXTS = ("kind", "name", "path")
_MOST_COUNTED = 2**16
_BATCH_ROWS = 2**16
Batch = tuple[int, pa.RecordBatch]
"""Number of the capture, some of its spans."""
Read = Callable[[Sequence[str]], Iterator[Batch]]
"""Gives these columns of all spans."""
Place = tuple[str, int]
"""Name of a Parquet file, and a GPU in it."""
LaneKey = tuple[int, int, int, int]
"""Capture, process, device, stream."""


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
    "kernel, memcpy, memset or graph, one per name."
    paths: tuple[str, ...]
    ranges: pd.DataFrame
    "start_ns, end_ns, row, name."
    range_rows: tuple[str, ...]
    origin_ns: int
    "Time of the first event; times sent to the browser count from here."
    extent_ns: int


def load_timeline(
    span_paths: tuple[Path, ...], ranks: Mapping[Place, int] | None = None
) -> Timeline | None:
    """Read the Parquet files (and their `.ranges.parquet`); None when they hold nothing.

    `ranks` names the rank of a file's GPU.
    """
    files = [p for p in span_paths if is_whole(p)]
    rank_of = {
        (capture, device): rank
        for capture, path in enumerate(files)
        for (name, device), rank in (ranks or {}).items()
        if name == path.name
    }
    return _build(partial(_of_files, files), _read_ranges(span_paths), rank_of)


def load_host_rows(span_paths: tuple[Path, ...]) -> Timeline | None:
    """Read what host threads did (`.host.parquet` beside the spans) as lanes; None without any."""
    files = [p.with_suffix(".host.parquet") for p in span_paths]
    parts = [pq.read_table(p) for p in files if is_whole(p)]
    table = pa.concat_tables([p.unify_dictionaries() for p in parts]) if parts else None
    if table is None or not len(table):
        return None
    # Threads take the place of devices, and their rows of streams, to get lanes the same way.
    nothing = pa.nulls(len(table), pa.string()).dictionary_encode()
    spans = table.select(["start_ns", "end_ns", "process", "kind", "name"])
    spans = spans.append_column("device", table["thread"]).append_column("stream", table["row"])
    spans = spans.append_column("path", nothing)
    spans = spans.append_column("launch_start_ns", pa.nulls(len(table), pa.int64()))
    batches = partial(_of_table, spans.combine_chunks())
    keys = _read_lanes(batches(_LANE_FIELDS), {})[1]
    whole = _build(batches, _read_ranges(()))
    assert whole is not None
    return replace(whole, lanes=_host_labels(keys))


def num_host_rows(span_paths: tuple[Path, ...]) -> int:
    """Return how many rows the host's files hold, from their footers."""
    files = [p.with_suffix(".host.parquet") for p in span_paths]
    return sum(pq.read_metadata(p).num_rows for p in files if is_whole(p))


def _host_labels(keys: Sequence[LaneKey]) -> tuple[str, ...]:
    several = len({key[1] for key in keys}) > 1
    return tuple(
        (f"process {process}, " if several else "")
        + f"thread {thread}, "
        + ("API calls" if row == 0 else "operators" if row == 1 else f"depth {row}")
        for _, process, thread, row in keys
    )


def build_timeline(spans: pa.Table, ranges: pd.DataFrame) -> Timeline:
    """Order spans by lane and start, and replace text by codes."""
    timeline = _build(partial(_of_table, spans), ranges)
    assert timeline is not None
    return timeline


def _of_files(paths: Sequence[Path], columns: Sequence[str]) -> Iterator[Batch]:
    """Give the captures' spans, a batch at a time, texts as codes."""
    for capture, path in enumerate(paths):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                yield capture, batch


def _of_table(spans: pa.Table, columns: Sequence[str]) -> Iterator[Batch]:
    for batch in spans.select(list(columns)).to_batches(_BATCH_ROWS):
        yield 0, batch


def _read_ranges(span_paths: tuple[Path, ...]) -> pd.DataFrame:
    files = [p.with_suffix(".ranges.parquet") for p in span_paths]
    frames = [pq.read_table(p).to_pandas() for p in files if is_whole(p)]
    columns = ["start_ns", "end_ns", "process", "thread", "depth", "name"]
    if not frames:
        return pd.DataFrame({c: [] for c in columns})
    return pd.concat([f[columns] for f in frames], ignore_index=True)


def _build(
    batches: Callable[[Sequence[str]], Iterator[Batch]],
    ranges: pd.DataFrame,
    rank_of: Mapping[tuple[int, int], int] | None = None,
) -> Timeline | None:
    """Put every batch's rows where their lanes are; None without any.

    Only what is kept has a place for all rows: on a virtual machine, memory that is touched for the
    first time costs more than all of the arithmetic.
    """
    rank_of = rank_of or {}
    lane_of_row, keys = _read_lanes(batches(_LANE_FIELDS), rank_of)
    if not keys:
        return None
    bounds = np.append(0, np.cumsum(np.bincount(lane_of_row, minlength=len(keys))))
    rows = _Rows(bounds)
    for _, batch in batches((*_TIMES, *_TEXTS)):
        rows.add(batch, lane_of_row)
    rows.sort()
    bound_ns = [ranges["start_ns"].min(), ranges["end_ns"].max()] if len(ranges) else []
    origin = int(min([rows.start_ns[bounds[:-1]].min(), *bound_ns]))
    last = int(max([rows.end_ns.max(), *bound_ns]))
    for times in (rows.start_ns, rows.end_ns, rows.launch_ns):
        np.subtract(times, origin, out=times)
    range_rows, labelled = _range_rows(ranges)
    return Timeline(
        start_ns=rows.start_ns,
        end_ns=rows.end_ns,
        name=rows.name,
        path=rows.path,
        launch_ns=rows.launch_ns,
        lane_bounds=bounds,
        lanes=_lane_labels(keys, rank_of),
        names=tuple(rows.names),
        kinds=tuple(rows.kinds.get(name, "kernel") for name in range(len(rows.names))),
        paths=tuple(rows.paths),
        ranges=labelled.assign(
            start_ns=labelled["start_ns"] - origin, end_ns=labelled["end_ns"] - origin
        ),
        range_rows=range_rows,
        origin_ns=origin,
        extent_ns=max(1, last - origin),
    )


class _Rows:
    """The arrays of all spans, filled batch by batch."""

    def __init__(self, bounds: np.ndarray) -> None:
        self.bounds = bounds
        size = int(bounds[-1])
        self.start_ns, self.end_ns = np.empty(size, np.int64), np.empty(size, np.int64)
        self.launch_ns = np.empty(size)
        self.name, self.path = np.empty(size, np.int32), np.empty(size, np.int32)
        self.names: dict[str, int] = {}
        self.paths: dict[str, int] = {}
        self.kinds: dict[int, str] = {}
        self._next = bounds[:-1].copy()
        self._num_read = 0

    def add(self, batch: pa.RecordBatch, lane_of_row: np.ndarray) -> None:
        """Put the next rows of the files after those of their lanes that are here."""
        lane = lane_of_row[self._num_read : self._num_read + len(batch)]
        self._num_read += len(batch)
        columns = (
            (self.start_ns, batch["start_ns"].to_numpy()),
            (self.end_ns, batch["end_ns"].to_numpy()),
            (self.launch_ns, batch["launch_start_ns"].cast("float64").to_numpy(False)),
            (self.name, name := _codes(batch["name"], self.names)),
            (self.path, _codes(batch["path"], self.paths)),
        )
        self._note_kinds(name, batch["kind"])
        order = np.argsort(lane, kind="stable") if (lane[1:] != lane[:-1]).any() else slice(None)
        counts = np.bincount(lane, minlength=len(self._next))
        read = 0
        for i in np.flatnonzero(counts):
            rows = order[read : read + counts[i]] if isinstance(order, np.ndarray) else order
            place = slice(self._next[i], self._next[i] + counts[i])
            for whole, part in columns:
                whole[place] = part[rows]
            self._next[i] += counts[i]
            read += counts[i]

    def _note_kinds(self, name: np.ndarray, kinds: pa.Array) -> None:
        texts: dict[str, int] = {}
        codes = _codes(kinds, texts)
        kind_of_name = np.full(len(self.names), -1)
        kind_of_name[name] = codes
        known = list(texts)
        self.kinds |= {int(n): known[kind_of_name[n]] for n in np.flatnonzero(kind_of_name >= 0)}

    def sort(self) -> None:
        """Put each lane in order of start: files are, several captures of one lane are not."""
        for first, last in zip(self.bounds[:-1], self.bounds[1:], strict=True):
            start = self.start_ns[first:last]
            if (start[1:] < start[:-1]).any():
                order = np.argsort(start, kind="stable")
                for whole in (self.start_ns, self.end_ns, self.launch_ns, self.name, self.path):
                    whole[first:last] = whole[first:last][order]


def _read_lanes(
    batches: Iterator[Batch], rank_of: Mapping[tuple[int, int], int]
) -> tuple[np.ndarray, list[LaneKey]]:
    """Return the lane of each row, and the lanes in order: by rank, else by file."""
    parts: list[np.ndarray] = []
    seen: dict[LaneKey, int] = {}
    for capture, batch in batches:
        fields = [batch[name].fill_null(-1).to_numpy(False) for name in _LANE_FIELDS]
        lane, first = _lanes(fields)
        process, device, stream = fields
        keys = [(capture, int(process[i]), int(device[i]), int(stream[i])) for i in first]
        numbers = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int32)
        parts.append(numbers[lane])
    order = sorted(seen, key=lambda key: (rank_of.get((key[0], key[2]), -1), key))
    place = np.empty(len(order), dtype=np.int32)
    place[[seen[key] for key in order]] = np.arange(len(order))
    return (place[np.concatenate(parts)] if parts else np.zeros(0, np.int32)), order


def _lanes(fields: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each row, equal where all fields are, and a row of each number."""
    lane = np.zeros(len(fields[0]), dtype=np.int32)
    for values in fields:
        if values.min() != values.max():
            codes, size = _dense(values)
            lane = _dense(lane * np.int64(size) + codes)[0] if lane.any() else codes
    first = np.empty(int(lane.max()) + 1, dtype=np.int64)
    first[lane] = np.arange(len(lane))
    return lane, first


def _dense(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the place of each value among the different ones, and how many these are."""
    offset = values - values.min()
    if offset.max() >= _MOST_COUNTED:
        present, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int32), len(present)
    seen = np.bincount(offset) > 0
    return (np.cumsum(seen, dtype=np.int32) - 1)[offset], int(seen.sum())


def _codes(texts: pa.Array, known: dict[str, int]) -> np.ndarray:
    """Return a code for each cell (-1 for none); texts not `known` yet are added to them."""
    if not pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_encode()
    place = [known.setdefault(str(t), len(known)) for t in texts.dictionary.to_pylist()]
    codes = texts.indices.fill_null(-1).to_numpy(False)
    return np.array([*place, -1], dtype=np.int32)[codes]


def _lane_labels(
    keys: Sequence[LaneKey], rank_of: Mapping[tuple[int, int], int]
) -> tuple[str, ...]:
    """Return the lanes' names: the stream, before it the rank, else what tells GPUs apart."""
    if all((capture, device) in rank_of for capture, _, device, _ in keys):
        return tuple(
            f"rank {rank_of[capture, device]}, stream {stream}"
            for capture, _, device, stream in keys
        )
    several = [len({key[i] for key in keys}) > 1 for i in (1, 2)]
    return tuple(
        (f"process {process}, " if several[0] else "")
        + (f"device {device}, " if several[1] else "")
        + f"stream {stream}"
        for _, process, device, stream in keys
    )


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
