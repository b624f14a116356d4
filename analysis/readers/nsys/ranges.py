"""Load NVTX ranges: push/pop and start/end, registered strings, domains, PyTorch's operators."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys.columns import (
    MISSING,
    ColumnBatches,
    DroppedRows,
    Ints,
    LaunchConfigEncoder,
    sound_times,
)
from analysis.readers.nsys.names import as_text, load_names
from analysis.trace.model import RangeKind
from captures.nsys_database import NsysDatabase

TABLE = "NVTX_EVENTS"
RANGE_TYPES = (59, 60, 70, 71)
"""Push/pop, start/end, and the two of NVTX text files. Marks (34) have no duration."""
DOMAIN_TYPE = 75
NO_TIME = int(np.iinfo(np.int64).min)
MAX_RANGE_NAME_CHARS = 1024
LIBRARY_DOMAINS = frozenset(
    {"nccl", "cublas", "cublaslt", "cudnn", "cusparse", "cusolver", "cufft"}
    | {"cccl", "cub", "thrust", "nvshmem", "ucx", "tensorrt", "tsl"}
)
"""Ranges that libraries open around their own calls."""
_METADATA = re.compile(r":#[^#]*#$")
"""What XLA (domain TSL) appends to a name: `XlaPass:#name=cse,module=jit_step#`."""
_ATTRIBUTES = re.compile(
    r", (?:seq|op_id|sizes|input_op_ids|stashed seq|stashed tid) = [-\d\[(].*", re.DOTALL
)
_SEQUENCE = re.compile(r", seq = (\d{1,18})\b")
_SIZES = re.compile(r", sizes = (\[.*?\])(?:, input_op_ids = |$)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeName:
    """What a range's name says."""

    name: str
    kind: RangeKind = RangeKind.ANNOTATION
    sequence: int = MISSING
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvtxRanges:
    """Closed ranges in the order of the file, and what is known of the others."""

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    "globalTid"
    name: NDArray[np.int32]
    "Row of `names`."
    names: tuple[RangeName, ...]
    num_unclosed: int
    num_closed_by_session_end: int
    num_cross_thread: int
    cut_names: tuple[str, ...]
    "Distinct names of the program's ranges that were open when the recording ended."


def pytorch_range(text: str) -> RangeName:
    """Return what PyTorch's `emit_nvtx` (`nsys --pytorch=autograd-nvtx`) says in a range's name.

    `aten::mm, seq = 12, op_id = 3, sizes = [[8, 8], [8, 8]]`: attributes follow the name. A range
    of the program itself (`record_function`) has an op_id too, but no namespace and no sequence.
    """
    suffix = _ATTRIBUTES.search(text)
    if suffix is None:
        is_engine = text.startswith("autograd::engine::")
        return RangeName(name=text, kind=RangeKind.OPERATOR if is_engine else RangeKind.ANNOTATION)
    name, attributes = text[: suffix.start()], suffix.group()
    sequence, sizes = _SEQUENCE.search(attributes), _SIZES.search(attributes)
    is_operator = "::" in name or sequence is not None
    return RangeName(
        name=name,
        kind=RangeKind.OPERATOR if is_operator else RangeKind.ANNOTATION,
        sequence=int(sequence[1]) if sequence else MISSING,
        detail=sizes[1] if sizes else None,
    )


def load_ranges(database: NsysDatabase, notes: DroppedRows) -> NvtxRanges:
    """Read the ranges; an absent table gives none."""
    columns = ("start", "end", "eventType", "textId", "globalTid", "endGlobalTid", "domainId")
    batches = ColumnBatches(
        database=database,
        table=TABLE,
        required=(),
        optional=columns,
        fills={"start": NO_TIME, "end": NO_TIME},
        nullable=frozenset(columns) - {"start", "eventType", "globalTid"},
    )
    table, needed = batches.table, ("start", "end", "eventType", "globalTid")
    parts = list(batches) if database.has(table, *needed) else []
    if table in database.tables and not parts and database.num_rows(table):
        notes.unreadable[table] = [c for c in needed if not database.has(table, c)]
    data = {c: np.concatenate([np.empty(0, np.int64), *(p[c] for p in parts)]) for c in columns}
    notes.note_odd(table, batches.num_odd)
    data["text"], texts = _texts(database, table, len(data["start"]), notes)
    return _closed_ranges(database, data, _Names(database, data, texts), table, notes)


def _texts(
    database: NsysDatabase, table: str, num_rows: int, notes: DroppedRows
) -> tuple[Ints, list[str]]:
    """Return the code of each row's `text` (MISSING for NULL) and the distinct texts."""
    if num_rows == 0 or not database.has(table, "text"):
        return np.full(num_rows, MISSING, np.int64), []
    codes: dict[object, int] = {}
    sql = f'SELECT substr(text, 1, {MAX_RANGE_NAME_CHARS}) FROM "{table}" NOT INDEXED'
    rows = database.conn.execute(sql)
    of_rows = (MISSING if t is None else codes.setdefault(t, len(codes)) for (t,) in rows)
    result = np.fromiter(of_rows, np.int64, count=num_rows)
    is_odd = np.array([not isinstance(t, str) for t in codes] + [False], bool)
    notes.note_odd(table, int(is_odd[result].sum()))
    return result, [as_text(t) for t in codes]


class _Names:
    """The names of ranges, from their own text, registered strings and domains."""

    def __init__(self, database: NsysDatabase, data: Mapping[str, Ints], texts: list[str]) -> None:
        self._database, self._data, self._texts = database, data, texts
        self._domains = self._load_domains()

    def _load_domains(self) -> dict[tuple[int, int], str]:
        """Return the name of each (process, domain id)."""
        rows = np.flatnonzero(self._data["eventType"] == DOMAIN_TYPE)
        registered = load_names(self._database, self._data["textId"][rows].tolist())
        names = {}
        for row in rows.tolist():
            key = (int(self._data["globalTid"][row]) >> 24, int(self._data["domainId"][row]))
            text_id, code = int(self._data["textId"][row]), int(self._data["text"][row])
            names[key] = registered.get(text_id) or (self._texts[code] if code >= 0 else "")
        return names

    def of_rows(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.int32], tuple[RangeName, ...]]:
        """Return the name of each row as a row of the distinct names."""
        data = self._data
        fields = (data["globalTid"] >> 24, data["domainId"], data["textId"], data["text"])
        encoder = LaunchConfigEncoder()
        met = encoder.encode([column[rows] for column in fields])
        keys = sorted(encoder.codes)
        registered = load_names(self._database, [text_id for _, _, text_id, _ in keys])
        codes: dict[RangeName, int] = {}
        name = np.empty(len(keys), np.int32)
        for key in keys:
            text = self._name(registered, *key)
            name[encoder.codes[key]] = codes.setdefault(text, len(codes))
        return name[met], tuple(codes)

    def _name(
        self, registered: Mapping[int, str], owner: int, domain_id: int, text_id: int, text: int
    ) -> RangeName:
        plain = registered.get(text_id) or (self._texts[text] if text >= 0 else "") or "(unnamed)"
        domain = self._domains.get((owner, domain_id), "") if domain_id > 0 else ""
        full = (f"{domain}:{plain}" if domain else plain)[:MAX_RANGE_NAME_CHARS]
        if domain.lower() in LIBRARY_DOMAINS:
            return RangeName(name=_METADATA.sub("", full), kind=RangeKind.LIBRARY)
        return RangeName(name=full) if domain else pytorch_range(full)


def _closed_ranges(
    database: NsysDatabase,
    data: dict[str, Ints],
    names: _Names,
    table: str,
    notes: DroppedRows,
) -> NvtxRanges:
    is_range = np.isin(data["eventType"], RANGE_TYPES)
    is_open = is_range & (data["end"] == NO_TIME)
    session_end = _session_end(database)
    is_cut = is_range & (data["end"] == session_end) & (session_end != NO_TIME)
    other = data["endGlobalTid"]
    is_cross = is_range & ~is_open & (other > 0) & (other != data["globalTid"])
    is_sound = sound_times(data["start"], data["end"])
    notes.note(table, int((is_range & ~is_open & ~is_sound).sum()), int(is_range.sum()))
    keep = np.flatnonzero(is_range & ~is_open & ~is_cut & ~is_cross & is_sound)
    name, distinct = names.of_rows(keep)
    cut, cut_names = names.of_rows(np.flatnonzero(is_open | is_cut))
    in_order = [cut_names[i] for i in dict.fromkeys(cut.tolist())]
    return NvtxRanges(
        start_ns=data["start"][keep],
        end_ns=data["end"][keep],
        thread=data["globalTid"][keep],
        name=name,
        names=distinct,
        num_unclosed=int((is_open | is_cut).sum()),
        num_closed_by_session_end=int(is_cut.sum()),
        num_cross_thread=int((is_cross & ~is_cut).sum()),
        cut_names=tuple(n.name for n in in_order if n.kind is RangeKind.ANNOTATION),
    )


def _session_end(database: NsysDatabase) -> int:
    """Return the session's end [ns]: nsys writes it as the end of ranges the program left open."""
    if not database.has("ANALYSIS_DETAILS", "duration"):
        return NO_TIME
    row = database.conn.execute("SELECT duration FROM ANALYSIS_DETAILS").fetchone()
    return row[0] if row and isinstance(row[0], int) and row[0] > 0 else NO_TIME
