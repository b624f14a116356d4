"""Copy an nsys export without what names people, machines and folders, and without its schema.

Known columns of known tables are read and inserted into a fresh database that we define: no view,
trigger, index, generated column, check, collation or virtual table of the file comes along, and an
authorizer refuses every statement that is not such a read. Times and counts stay to the nanosecond.
The source is only read.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from captures.database import sidecars
from captures.nsys_database import NsysDatabase, open_nsys
from captures.nsys_structure import DAMAGED
from captures.private import Cleaner, PrivateWords, private_field
from core.errors import CaptureError

_TABLES = re.compile(
    r"CUPTI_ACTIVITY_KIND_[A-Z0-9_]{1,60}|CUDA_[A-Z0-9_]{1,60}|CUBLAS_EVENTS|CUDNN_EVENTS|NVTX_EVENTS"
    r"|MPI_[A-Z0-9_]{1,40}|NCCL_[A-Z0-9_]{1,40}|OSRT_API|OSRT_CALLCHAINS|SAMPLING_CALLCHAINS"
    r"|COMPOSITE_EVENTS|SCHED_EVENTS|PROFILER_OVERHEAD|GPU_METRICS|GPU_CONTEXT_SWITCH_EVENTS"
    r"|OPENMP_EVENT_KIND_[A-Z0-9_]{1,40}|ENUM_[A-Z0-9_]{1,60}|ANALYSIS_DETAILS|DIAGNOSTIC_EVENT"
    r"|TARGET_INFO_(?:GPU|GPU_METRICS|CUDA_[A-Z_]{1,40}|NVTX_CUDA_[A-Z_]{1,40}|SYSTEM_ENV"
    r"|SESSION_START_TIME)|META_DATA_CAPTURE|META_DATA_EXPORT|EXPORT_META_DATA|StringIds"
    r"|PROCESSES|ThreadNames"
)
"""Tables that are copied. What holds contents of files, of streams or of other programs is not."""
_WHOLE_NUMBERS = (
    "CpuInstruction DeviceType address argumentsId asyncEngines blockX blockY blockZ bytes "
    "cacheConfig callchainId category clockRate clusterSchedulingPolicy clusterX clusterY "
    "clusterZ color commHandle computeMajor computeMinor constantMemory contextId copyCount "
    "copyKind correlationId count cpu cpuCycles cuContextId cuDevice cuDeviceId cuStreamId "
    "cudaId demangledName deprecatedSrcId deprecatedSyncType deviceId domainId dstContextId "
    "dstDeviceId dstKind duration dynamicSharedMemory end endGlobalTid eventClass eventId "
    "eventKind eventSyncId eventType faultAccessType flag funcName globalPid globalTid "
    "globalVid gpuId graphExecId graphId graphNodeId greenContextId gridId gridX gridY gridZ "
    "groupSize hwId id importedMemoryPoolAddress importedMemoryPoolProcessId int32Value "
    "int64Value isDiscrete isGreenContext isSchedIn kernelMode kernelName kind l2CacheSize "
    "launchType lineNo localMemoryPerThread localMemoryPoolAddress "
    "localMemoryPoolReleaseThreshold localMemoryPoolSize localMemoryPoolUtilizedSize "
    "localMemoryTotal localRank localSize luid mangledName maxActiveClusters maxBlockDimX "
    "maxBlockDimY maxBlockDimZ maxBlocksPerSm maxGridDimX maxGridDimY maxGridDimZ maxIPC "
    "maxPotentialClusterSize maxRegistersPerBlock maxRegistersPerSm maxShmemPerBlock "
    "maxShmemPerBlockOptin maxShmemPerSm maxThreadsPerBlock maxWarpsPerSm memKind "
    "memoryBandwidth memoryOperationType metricId migrationCause minBytesToKeep module "
    "nameEnum nameId nestingLevel newTaskId nextTaskId nodeMask nullStreamId numGangs "
    "numMultiprocessors numWorkers numberOfPageFaults operationType originalFaultPc "
    "originalGraphId originalGraphNodeId originalIP overheadType parallelId parentContextId "
    "parentHandle parentTaskId pc pid poolType priorTaskId priorTaskStatus priority processId "
    "pwGpuId qmdBulkReleaseDone qmdLastCtaDone qmdPreexitDone rangeId rank rawTimestamp "
    "recvSize registersPerThread remoteRank requestHandle returnValue revision rootRank "
    "sendSize severity sharedMemoryExecuted sharedMemoryLimitConfig "
    "sharedMemoryRequestedPercentage shortName size smCount smMajor smMinor source sourceId "
    "specialEntry srcContextId srcDeviceId srcFile srcKind stackDepth start startTime "
    "staticSharedMemory stopTime streamId symbol syncType systemClockNs tag taskId textId "
    "threadBlock threadId threadState threadType threadsPerWarp thumbCode timestamp "
    "timestampType totalMemory type typeId uint32Value uint64Value unresolved "
    "unresolvedFaultPc unwindMethod utcEpochNs value varName vectorLength virtualAddress vmId "
    "waitId"
)
_KNOWN_NUMBERS = frozenset(re.findall(r"\w+", _WHOLE_NUMBERS))
_REALS = frozenset({"doubleValue", "floatValue"})
_TEXTS = frozenset(
    {"name", "text", "label", "busLocation", "chipName", "utcTime", "localTime", "uuid"}
    | {"metricName", "typeName"}
)
_METADATA = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA")
_SYSTEM = "TARGET_INFO_SYSTEM_ENV"
_TEXT_VALUES = frozenset({*_METADATA, _SYSTEM, "StringIds"})
"Tables whose `value` is a text."
_KEPT_SYSTEM = re.compile(
    r"(?!.*(?i:uuid|serial))(?:Cpu|Cuda|NvDriver|Os[DV]|Gpu|Has|Supports|Is[A-Z]|Hardware|Software"
    r"|Supported|Linux|Export|Ofed|Soc|dpti)"
)
_EMPTIED = {"PROCESSES": "process names", "ThreadNames": "thread names"}
_STRING_COLUMNS = frozenset(
    {"nameId", "textId", "demangledName", "shortName", "mangledName", "symbol", "module"}
    | {"srcFile", "funcName", "varName", "kernelName"}
)
_NAMES_OF_ONE = frozenset({"demangledName", "shortName", "mangledName"})
_PRIVATE_TEXTS = {
    "ANALYSIS_FILE": "content",
    "GENERIC_EVENTS": "data",
    "ETW_EVENTS": "data",
    "PROCESSES": "name",
}
"""Texts that are dropped, and read once before for the names of people and hosts in them."""
_MAX_LEARNED_BYTES = 8 << 20
_MAX_NAMES = 1 << 14
"A table with more names than this is cleaned row by row."
_ALLOWED_FUNCTIONS = frozenset({"count", "max", "length", "cleaned", "hashed", "is_kept", "typeof"})


def scrub_nsys_sqlite(
    source: Path, dest: Path, words: PrivateWords | None = None
) -> tuple[str, ...]:
    """Write the copy and return what was removed, e.g. ("environment variables", "host", "paths").

    `words` are names known beforehand, of this host and its user. CaptureError for a source that is
    not a sound export. `dest` is replaced in one step.
    """
    part = dest.with_name(dest.name + ".part")
    try:
        part.unlink(missing_ok=True)
        with open_nsys(source) as database:
            removed = _Copy(database, PrivateWords() if words is None else words).write(part)
        os.replace(part, dest)
    except OSError as exc:
        raise CaptureError(
            dest, f"the scrubbed copy cannot be written ({exc.strerror})", "Check space and access"
        ) from exc
    finally:
        for leftover in (part, part.with_name(part.name + "-journal")):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)
    return removed


def copy_nsys_sqlite(source: Path, dest: Path) -> None:
    """Copy an export unchanged, with the rows of a write-ahead log beside it; CaptureError."""
    import shutil
    from urllib.parse import unquote, urlsplit

    if not sidecars(source):
        shutil.copyfile(source, dest)
        return
    with open_nsys(source) as database:
        shutil.copyfile(unquote(urlsplit(database.uri).path), dest)


class _Copy:
    """Copies one export into a database of our own."""

    def __init__(self, database: NsysDatabase, words: PrivateWords) -> None:
        self._database = database
        self._cleaner = Cleaner(words)
        self._removed: dict[str, None] = {}
        self._tables: dict[str, tuple[str, ...]] = {}

    def write(self, target: Path) -> tuple[str, ...]:
        with closing(sqlite3.connect(target, uri=True, isolation_level=None)) as conn:
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "trusted_schema=OFF"):
                conn.execute(f"PRAGMA {pragma}")
            self._limit(conn)
            conn.execute("ATTACH ? AS source", (self._database.uri,))
            self._tables = _known_tables(self._database.conn)
            self._learn(self._database.conn)
            self._offer_functions(conn)
            conn.set_authorizer(_authorizer(set(self._tables)))
            with ThreadPoolExecutor(max_workers=1) as beside:
                used = beside.submit(_used_strings, self._database, self._tables)
                try:
                    conn.execute("BEGIN")
                    for table, columns in self._tables.items():
                        self._copy(conn, table, columns)
                    self._copy_strings(conn, used.result())
                    conn.execute("COMMIT")
                except sqlite3.OperationalError as exc:
                    self._raise_if_endless(conn, exc)
                    raise
        return tuple(self._removed | self._cleaner.removed)

    def _raise_if_endless(self, conn: sqlite3.Connection, error: sqlite3.OperationalError) -> None:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            conn.set_authorizer(None)
            used, most = (
                conn.execute(f"PRAGMA main.{name}").fetchone()[0]
                for name in ("page_count", "max_page_count")
            )
            if used >= most:
                raise CaptureError(
                    self._database.path, "it gives more rows than it has room for", DAMAGED
                ) from error

    def _limit(self, conn: sqlite3.Connection) -> None:
        """A crafted tree of pages may give the same rows for ever: the copy may not outgrow it."""
        conn.execute("PRAGMA page_size=4096")
        pages = (2 * self._database.path.stat().st_size + (64 << 20)) // 4096
        conn.execute(f"PRAGMA max_page_count={pages}")

    def _offer_functions(self, conn: sqlite3.Connection) -> None:
        conn.create_function("cleaned", 1, self._cleaned, deterministic=True)
        conn.create_function("hashed", 1, self._hashed, deterministic=True)
        conn.create_function("is_kept", 3, self._is_kept)
        conn.text_factory = lambda raw: raw.decode("utf-8", "replace")

    def _cleaned(self, value: Any) -> Any:
        value = _decoded(value)
        return self._cleaner.text(value) if isinstance(value, str) else value

    def _hashed(self, value: Any) -> Any:
        value = _decoded(value)
        if not isinstance(value, str) or not value:
            return value
        new = self._cleaner.words.device(value)
        if new != value:
            self._removed["GPU UUIDs (a hash stays)" if new else "GPU UUIDs"] = None
        return new or None

    def _is_kept(self, table: str, key: Any, value: Any) -> int:
        """Say whether a row of metadata or of the system's description stays."""
        key, value = _decoded(key), _decoded(value)
        if table == _SYSTEM:
            what = None if _KEPT_SYSTEM.match(str(key)) else "system description"
        else:
            what = private_field(str(key))
            if what is None and isinstance(value, str) and self._cleaner.text(value) != value:
                what = "paths"
        if what is not None and str(value or ""):
            self._removed[what] = None
        return what is None

    def _learn(self, conn: sqlite3.Connection) -> None:
        """Take names of people and hosts from what is dropped."""
        words = self._cleaner.words
        for table in (t for t in _METADATA if t in self._tables):
            for key, value in conn.execute(f'SELECT "name", "value" FROM main."{table}"'):
                what = private_field(str(key))
                if what in ("host", "user", "secrets"):
                    words.add(str(value or ""))
                if what is not None:
                    words.learn(str(value or ""))
        for table, column in _PRIVATE_TEXTS.items():
            if column in _stored_columns(conn, table):
                sql = f'SELECT "{column}" FROM main."{table}" WHERE length("{column}") < ?'
                for (value,) in conn.execute(sql, (_MAX_LEARNED_BYTES,)):
                    words.learn(value if isinstance(value, str) else "")

    def _copy(self, conn: sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
        declared = ", ".join(f'"{c}" {_type(table, c)}' for c in columns)
        conn.execute(f'CREATE TABLE main."{table}" ({declared})')
        if table == "StringIds":
            return
        if what := _EMPTIED.get(table):
            if conn.execute(f'SELECT count(*) FROM source."{table}"').fetchone()[0]:
                self._removed[what] = None
            return
        chosen = ", ".join(_expression(table, c) for c in columns)
        if self._stays_as_it_is(conn, table, columns):
            chosen = "*"  # these very columns in this order: SQLite then copies record by record
        where = ""
        if table in _METADATA or table == _SYSTEM:
            where = f" WHERE is_kept('{table}', {_bytes_of('name')}, {_bytes_of('value')})"
        conn.execute(
            f'INSERT INTO main."{table}" SELECT {chosen} FROM source."{table}" NOT INDEXED{where}'
        )

    def _stays_as_it_is(self, conn: sqlite3.Connection, table: str, columns: Sequence[str]) -> bool:
        """Say whether a table has exactly these columns, none generated, and no text to clean."""
        info = self._database.conn.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        texts = [c for c in columns if _type(table, c) == "TEXT"]
        if texts not in ([], ["name"]) or [(r[1], r[6]) for r in info] != [(c, 0) for c in columns]:
            return False
        distinct = f'SELECT DISTINCT "name" FROM source."{table}" NOT INDEXED LIMIT {_MAX_NAMES}'
        names = [row[0] for row in conn.execute(distinct)] if texts else []
        return len(names) < _MAX_NAMES and all(self._cleaned(name) == name for name in names)

    def _copy_strings(self, conn: sqlite3.Connection, used: set[int]) -> None:
        """Copy the strings to which a copied row refers; the others tell what was dropped."""
        if "StringIds" not in self._tables:
            return
        conn.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
        conn.executemany("INSERT INTO temp.used VALUES (?)", ((i,) for i in used))
        conn.execute(
            f'INSERT INTO main."StringIds" SELECT s."id", cleaned({_bytes_of("value")})'
            ' FROM source."StringIds" s NOT INDEXED WHERE s."id" IN (SELECT id FROM temp.used)'
        )
        counts = [
            conn.execute(f'SELECT count(*) FROM {schema}."StringIds"').fetchone()[0]
            for schema in ("main", "source")
        ]
        if counts[0] < counts[1]:
            self._removed["unused strings"] = None


def _type(table: str, column: str) -> str:
    if table == "StringIds" and column == "id":
        return "INTEGER PRIMARY KEY"
    if column in _TEXTS or (column == "value" and table in _TEXT_VALUES):
        return "TEXT"
    return "REAL" if column in _REALS else "INTEGER"


def _expression(table: str, column: str) -> str:
    if column == "uuid":
        return f"hashed({_bytes_of(column)})"
    is_public = column in ("utcTime", "localTime", "busLocation") or table.startswith("ENUM_")
    if _type(table, column) != "TEXT" or is_public:
        return f'"{column}"'
    return f"cleaned({_bytes_of(column)})"


def _bytes_of(column: str) -> str:
    """Give a text as its bytes: one that is not UTF-8 would not come through to our functions."""
    text = f"typeof(\"{column}\") = 'text'"
    return f'CASE WHEN {text} THEN CAST("{column}" AS BLOB) ELSE "{column}" END'


def _decoded(value: Any) -> Any:
    """Return what `_bytes_of` gave as a text again, and a blob as one."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _known_tables(conn: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return the plain tables that are known, with those of their columns that are known."""
    rows = conn.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    ).fetchall()
    known = {}
    for name, sql in rows:
        if _TABLES.fullmatch(str(name)) and not str(sql).upper().startswith("CREATE VIRTUAL"):
            columns = tuple(c for c in _stored_columns(conn, str(name)) if _is_known(str(name), c))
            if columns:
                known[str(name)] = columns
    return known


def _is_known(table: str, column: str) -> bool:
    if table.startswith("ENUM_"):
        return column in ("id", "name", "label")
    if table == "StringIds":
        return column in ("id", "value")
    return column in _KNOWN_NUMBERS or column in _REALS or column in _TEXTS


def _stored_columns(conn: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return the stored columns: neither generated nor hidden ones."""
    return tuple(str(r[1]) for r in conn.execute(f'PRAGMA table_xinfo("{table}")') if not r[6])


def _used_strings(database: NsysDatabase, tables: Mapping[str, Sequence[str]]) -> set[int]:
    """Return the ids of the strings to which any row refers that the copy keeps."""
    used: set[int] = set()
    with closing(sqlite3.connect(database.uri, uri=True, isolation_level=None)) as conn:
        conn.execute("PRAGMA trusted_schema=OFF")
        conn.set_authorizer(_authorizer(set(tables), source="main"))
        for table, columns in tables.items():
            coded = [c for c in columns if c in _STRING_COLUMNS and table not in _EMPTIED]
            for group in _read_together(coded):
                quoted = ", ".join(f'"{column}"' for column in group)
                for row in conn.execute(f'SELECT DISTINCT {quoted} FROM "{table}" NOT INDEXED'):
                    used.update(value for value in row if isinstance(value, int))
    return used


def _read_together(columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Group columns whose combinations are no more than their values: the names of one kernel."""
    if names := tuple(c for c in columns if c in _NAMES_OF_ONE):
        yield names
    yield from ((c,) for c in columns if c not in _NAMES_OF_ONE)


def _authorizer(known: set[str], source: str = "source") -> Callable[..., int]:
    """Allow reads of the known tables of `source`, writes to our own, and our own functions."""
    always = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION}
    writes = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_CREATE_TABLE}
    writes |= {sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_INDEX}

    def judge(action: int, first: Any, second: Any, schema: Any, inside: Any) -> int:
        if inside is not None:  # a view or a trigger asks
            return sqlite3.SQLITE_DENY
        is_fine = (
            action in always
            or (action == sqlite3.SQLITE_FUNCTION and second in _ALLOWED_FUNCTIONS)
            or (action == sqlite3.SQLITE_READ and (schema != source or first in known))
            or (action in writes and schema != source)
        )
        return sqlite3.SQLITE_OK if is_fine else sqlite3.SQLITE_DENY

    return judge
