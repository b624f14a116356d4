"""Carry an assembled run from the process that read it to the one that stores it, as files.

The reading side writes `run.json`, with frames as lists of values, and Parquet for launches and
ranges. The storing side takes nothing on trust: every field is built by the record's own types, a
path must be inside the folder, and neither pandas nor pyarrow is needed to do it.
"""

import dataclasses
import json
import os
import stat
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from analysis.rundata import AssembledRun
from captures.contents import open_plain
from captures.manifest import is_plain_name
from captures.opening import clean_text
from core.errors import CaptureError
from core.spec import JobSpec

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from analysis.span_file import SpanFile

RUN = "run.json"
MAX_RUN_BYTES = 1 << 30
MAX_TEXT_CHARS = 1 << 16
WRITERS = 2
_PLAIN = (str, int, float, bool)


class Column(list[Any]):
    """The values of one column; None is missing."""

    def tolist(self) -> list[Any]:
        """Return the values, as a pandas column does."""
        return list(self)


class Columns:
    """A frame as it was carried: columns by name."""

    def __init__(self, columns: Mapping[str, list[Any]]) -> None:
        self._columns = {name: Column(values) for name, values in columns.items()}
        if len({len(values) for values in self._columns.values()}) > 1:
            raise ValueError("columns of different lengths")

    def __len__(self) -> int:
        return next((len(values) for values in self._columns.values()), 0)

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]


class StoredTable:
    """Records in a Parquet file that is moved to where it is kept."""

    def __init__(self, path: Path, num_rows: int) -> None:
        self.path = path
        self.num_rows = num_rows

    def store(self, target: Path) -> None:
        """Move the file."""
        os.replace(self.path, target)


class _Files:
    """Writes records to files of a folder, two at a time."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self._folder, self._pool = folder, pool
        self._writing: list[Future[None]] = []

    def written(self, records: "pa.Table | SpanFile") -> str:
        """Begin to write records and return the name of their file."""
        name = f"table-{len(self._writing)}.parquet"
        self._writing.append(self._pool.submit(write_records, records, self._folder / name))
        return name

    def wait(self) -> None:
        """Return once everything is written; raise what went wrong."""
        for writing in self._writing:
            writing.result()


def write_run(run: AssembledRun, folder: Path) -> None:
    """Write the run to `folder`, which holds its files already."""
    with ThreadPoolExecutor(WRITERS) as pool:
        files = _Files(folder, pool)
        document = _encoded(run, files)
        files.wait()
    text = json.dumps(document)
    if len(text) > MAX_RUN_BYTES:
        raise ValueError(f"the run takes {len(text)} bytes, more than {MAX_RUN_BYTES}")
    (folder / RUN).write_text(text)


def read_run(folder: Path) -> AssembledRun:
    """Return the run in `folder`; ValueError where it is not what `write_run` writes."""
    return run_of(read_document(folder / RUN), folder)


def read_document(path: Path) -> dict[str, Any]:
    """Return what a reader's process wrote: it is the side not trusted. ValueError, OSError."""
    try:
        with open_plain(path) as file:
            text = file.read(MAX_RUN_BYTES + 1)
        if len(text) > MAX_RUN_BYTES:
            raise ValueError(f"{path.name} is larger than {MAX_RUN_BYTES} bytes")
        document: dict[str, Any] = _of(dict, json.loads(text))
    except (RecursionError, CaptureError) as exc:
        raise ValueError(f"{path.name} is no document") from exc
    return document


def run_of(document: Mapping[str, Any], folder: Path) -> AssembledRun:
    """Return the run that a document tells of, whose files lie in `folder`; see `read_run`."""
    run: AssembledRun = _decoded(AssembledRun, document, folder)
    return run


def _encoded(value: Any, files: _Files) -> Any:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, JobSpec):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {_text(str(k)): _encoded(v, files) for k, v in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [_encoded(v, files) for v in value]
    if dataclasses.is_dataclass(value):
        names = (f.name for f in dataclasses.fields(value))
        return {name: _encoded(getattr(value, name), files) for name in names}
    if hasattr(value, "item"):  # a number of numpy's
        return value.item()
    return _encoded_table(value, files)


def _text(text: str) -> str:
    """Return a text that can be stored, cut where no name or message is that long."""
    return clean_text(text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "...")


def _encoded_table(value: Any, files: _Files) -> dict[str, Any]:
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        if not len(value):
            return {"columns": {str(name): [] for name in value.columns}}
        return {"columns": {str(name): _values(column) for name, column in value.items()}}
    return {"parquet": files.written(value), "num_rows": value.num_rows}


def _values(column: "pd.Series[Any]") -> list[Any]:
    """Return Python values with None for what is missing."""
    import pandas as pd

    if column.dtype.kind in "iub" and not pd.api.types.is_extension_array_dtype(column.dtype):
        return column.tolist()
    values = (None if v is pd.NA or v != v else v for v in column.tolist())
    return [_text(v) if isinstance(v, str) else v for v in values]


def write_records(value: "pa.Table | SpanFile", path: Path) -> None:
    """Write records of single operations as the Parquet file that is kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from analysis.span_file import parquet_settings

    if isinstance(value, pa.Table):
        pq.write_table(value, path, **parquet_settings(value.schema))
    else:
        value.store(path)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a record's fields, with the carried form for frames and tables."""
    carried = types.SimpleNamespace(DataFrame=Columns, Table=StoredTable)
    names = {"pd": carried, "pa": carried, "SpanFile": StoredTable}
    return get_type_hints(kind, localns=names)


def _decoded(hint: Any, value: Any, folder: Path) -> Any:
    return _decoder(hint)(value, folder)


Decoder = Callable[[Any, Path], Any]
"""Builds a value from what JSON carried; files are looked for in the folder."""


@cache
def _decoder(hint: Any) -> Decoder:
    """Return what builds values of a type: looking types up once saves most of the time."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return partial(_decoded_union, args)
    if origin is tuple:
        return partial(_decoded_tuple, args[0])
    if hint is Any or hint is object:
        return lambda value, folder: value
    if origin is not None:  # Mapping[str, ...]: free of shape, and JSON alone
        return lambda value, folder: _of(dict, value)
    if dataclasses.is_dataclass(hint) and hint is not JobSpec:
        kinds = _hints(hint)  # type: ignore[arg-type]
        fields = [(f.name, _decoder(kinds[f.name])) for f in dataclasses.fields(hint)]
        return partial(_decoded_record, hint, fields)
    if hint in (str, int, bool):
        return lambda value, folder: _of(hint, value)
    return partial(_decoded_single, hint)


def _decoded_union(hints: tuple[Any, ...], value: Any, folder: Path) -> Any:
    if value is None and type(None) in hints:
        return None
    for hint in hints:  # which of several types it was written from
        if isinstance(hint, type) and hint in _PLAIN and type(value) is hint:
            return value
    return _decoded(next(h for h in hints if h is not type(None)), value, folder)


def _decoded_tuple(item: Any, value: Any, folder: Path) -> tuple[Any, ...]:
    values = _of(list, value)
    if item in _PLAIN and set(map(type, values)) <= {item}:
        return tuple(values)
    decode = _decoder(item)
    return tuple(decode(v, folder) for v in values)


def _decoded_record(
    kind: Any, fields: Sequence[tuple[str, Decoder]], value: Any, folder: Path
) -> Any:
    given = _of(dict, value)
    values = {name: decode(given[name], folder) for name, decode in fields}
    if "file_name" in values and not is_plain_name(values["file_name"]):
        raise ValueError(f"{values['file_name']!r:.60} is no name of a file")
    return kind(**values)


def _decoded_single(hint: Any, value: Any, folder: Path) -> Any:
    if hint is Columns:
        return Columns(_of(dict, _of(dict, value)["columns"]))
    if hint is StoredTable:
        table = _of(dict, value)
        path = _inside(folder, table["parquet"])
        return StoredTable(path, int(table["num_rows"]))
    if hint is Path:
        return _inside(folder, _of(str, value))
    if hint is JobSpec:
        return JobSpec.from_dict(_of(dict, value))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _of(hint, value)


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{str(value)[:60]!r} is no {kind}")
    return value


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a file that lies in the folder, or would; ValueError for another."""
    path = folder / name
    if not is_plain_name(name) and not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r:.60} lies outside the folder")
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return path
    if stat.S_ISLNK(mode):
        raise ValueError(f"{name!r:.60} lies outside the folder")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name!r:.60} is no file")
    return path
