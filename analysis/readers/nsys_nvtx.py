"""Load NVTX ranges: push/pop and start/end, registered strings, domains; count what is unclosed."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import MISSING, ColumnBatches, Ints
from analysis.readers.nsys_events import Quarantine, sound_times
from analysis.readers.nsys_names import as_text, load_names
from captures.nsys_database import NsysDatabase

TABLE = "NVTX_EVENTS"
RANGE_TYPES = (59, 60, 70, 71)
"""Push/pop, start/end, and the two of NVTX text files. Marks (34) have no duration."""
DOMAIN_TYPE = 75
NO_TIME = int(np.iinfo(np.int64).min)
MAX_RANGE_NAME_CHARS = 1024
LIBRARY_DOMAINS = frozenset(
    {"nccl", "cublas", "cublaslt", "cudnn", "cusparse", "cusolver", "cufft"}
    | {"cccl", "cub", "thrust", "nvshmem", "ucx", "tensorrt"}
)
"""Ranges that libraries open around their own calls; they are nobody's phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Closed ranges, sorted by thread, then start, the longer first."""

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    "globalTid"
    name: NDArray[np.int32]
    "Index into `names`."
    is_library: NDArray[np.bool_]
    names: tuple[str, ...]
    num_unclosed: int
    num_closed_by_session_end: int
    num_cross_thread: int
    cut_names: tuple[str, ...] = ()
    "Distinct names of the program's ranges that were open when the recording ended."

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, keep: NDArray[np.intp]) -> "Ranges":
        """Return the chosen ranges, counts unchanged."""
        columns = ("start_ns", "end_ns", "thread", "name", "is_library")
        return replace(self, **{c: getattr(self, c)[keep] for c in columns})


def load_ranges(database: NsysDatabase, quarantine: Quarantine) -> Ranges:
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
    parts = list(batches) if database.has(TABLE, "start", "end", "eventType", "globalTid") else []
    if TABLE in database.tables and not parts and database.num_rows(TABLE):
        wanted = ("start", "end", "eventType", "globalTid")
        quarantine.unreadable[TABLE] = [c for c in wanted if not database.has(TABLE, c)]
    data = {c: np.concatenate([p[c] for p in parts] or [np.empty(0, np.int64)]) for c in columns}
    quarantine.note_odd(TABLE, batches.num_odd)
    texts, values = _texts(database, len(data["start"]), quarantine)
    data["text"] = texts
    domains = _domains(database, data, values)
    return _closed_ranges(database, data, values, domains, quarantine)


def _texts(database: NsysDatabase, num_rows: int, quarantine: Quarantine) -> tuple[Ints, list[str]]:
    """Return the code of each row's `text` (MISSING for NULL) and the distinct texts."""
    if num_rows == 0 or not database.has(TABLE, "text"):
        return np.full(num_rows, MISSING, np.int64), []
    codes: dict[object, int] = {}
    sql = f"SELECT substr(text, 1, {MAX_RANGE_NAME_CHARS}) FROM {TABLE} NOT INDEXED"
    rows = database.conn.execute(sql)
    found = (MISSING if t is None else codes.setdefault(t, len(codes)) for (t,) in rows)
    result = np.fromiter(found, np.int64, count=num_rows)
    is_odd = np.array([not isinstance(t, str) for t in codes] + [False], bool)
    quarantine.note_odd(TABLE, int(is_odd[result].sum()))
    return result, [as_text(t) for t in codes]


def _domains(
    database: NsysDatabase, data: dict[str, Ints], texts: list[str]
) -> dict[tuple[int, int], str]:
    """Return the name of each (process, domain id)."""
    rows = np.flatnonzero(data["eventType"] == DOMAIN_TYPE)
    registered = load_names(database, data["textId"][rows].tolist())
    found = {}
    for row in rows.tolist():
        key = (int(data["globalTid"][row]) >> 24, int(data["domainId"][row]))
        text_id, code = int(data["textId"][row]), int(data["text"][row])
        found[key] = registered.get(text_id) or (texts[code] if code >= 0 else "")
    return found


def _closed_ranges(
    database: NsysDatabase,
    data: dict[str, Ints],
    texts: list[str],
    domains: dict[tuple[int, int], str],
    quarantine: Quarantine,
) -> Ranges:
    is_range = np.isin(data["eventType"], RANGE_TYPES)
    is_open = is_range & (data["end"] == NO_TIME)
    session_end = _session_end(database)
    is_cut = is_range & (data["end"] == session_end) & (session_end != NO_TIME)
    other = data["endGlobalTid"]
    is_cross = is_range & ~is_open & (other > 0) & (other != data["globalTid"])
    is_sound = sound_times(data["start"], data["end"])
    is_dropped = is_range & ~is_open & ~is_sound
    quarantine.note(TABLE, int(is_dropped.sum()), int(is_range.sum()))
    keep = np.flatnonzero(is_range & ~is_open & ~is_cut & ~is_cross & is_sound)
    order = np.lexsort((-data["end"][keep], data["start"][keep], data["globalTid"][keep]))
    keep = keep[order]
    names, name, is_library = _full_names(database, data, keep, texts, domains)
    return Ranges(
        start_ns=data["start"][keep],
        end_ns=data["end"][keep],
        thread=data["globalTid"][keep],
        name=name,
        is_library=is_library,
        names=names,
        num_unclosed=int((is_open | is_cut).sum()),
        num_closed_by_session_end=int(is_cut.sum()),
        num_cross_thread=int((is_cross & ~is_cut).sum()),
        cut_names=_own_names(database, data, np.flatnonzero(is_open | is_cut), texts, domains),
    )


def _own_names(
    database: NsysDatabase,
    data: dict[str, Ints],
    chosen: NDArray[np.intp],
    texts: list[str],
    domains: dict[tuple[int, int], str],
) -> tuple[str, ...]:
    """Return the distinct names of these rows, those that libraries opened left out."""
    names, name, is_library = _full_names(database, data, chosen, texts, domains)
    return tuple(names[i] for i in dict.fromkeys(name[~is_library].tolist()))


def _session_end(database: NsysDatabase) -> int:
    """Return the session's end [ns]: nsys writes it as the end of ranges the program left open."""
    if not database.has("ANALYSIS_DETAILS", "duration"):
        return NO_TIME
    row = database.conn.execute("SELECT duration FROM ANALYSIS_DETAILS").fetchone()
    return row[0] if row and isinstance(row[0], int) and row[0] > 0 else NO_TIME


def _full_names(
    database: NsysDatabase,
    data: dict[str, Ints],
    keep: NDArray[np.intp],
    texts: list[str],
    domains: dict[tuple[int, int], str],
) -> tuple[tuple[str, ...], NDArray[np.int32], NDArray[np.bool_]]:
    """Return the distinct names, the name of each kept row and whether a library opened it."""
    process = data["globalTid"][keep] >> 24
    fields = (process, data["domainId"][keep], data["textId"][keep], data["text"][keep])
    distinct, inverse = np.unique(np.stack(fields), axis=1, return_inverse=True)
    registered = load_names(database, distinct[2].tolist())
    codes: dict[str, int] = {}
    name = np.empty(distinct.shape[1], np.int32)
    is_library = np.zeros(distinct.shape[1], bool)
    for i, (owner, domain_id, text_id, text) in enumerate(distinct.T.tolist()):
        plain = registered.get(text_id) or (texts[text] if text >= 0 else "") or "(unnamed)"
        domain = domains.get((owner, domain_id), "") if domain_id > 0 else ""
        full = f"{domain}:{plain}" if domain else plain
        name[i] = codes.setdefault(full[:MAX_RANGE_NAME_CHARS], len(codes))
        is_library[i] = domain.lower() in LIBRARY_DOMAINS
    inverse = inverse.reshape(-1)
    return tuple(codes), name[inverse], is_library[inverse]
