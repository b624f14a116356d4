"""Open an Nsight Systems SQLite export read-only, and say which real tables and columns it has.

Nothing is ever written next to the file. Only plain tables are read: a view, a virtual table, a
generated column or a trigger on a table of ours could run foreign SQL.
"""

import errno
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from captures.database import immutable_uri, recovered_copy, sidecars
from captures.nsys_structure import DAMAGED, StructureCheck, harden
from captures.opening import reading
from core.errors import CaptureError

SQLITE_MAGIC = b"SQLite format 3\0"
LFS_MAGIC = b"version https://git-lfs"
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
NSYS_TABLE_PREFIXES = (
    "CUPTI_ACTIVITY_KIND_",
    "CUDA_GPU_MEMORY_",
    "CUDA_GRAPH_",
    "TARGET_INFO_",
    "META_DATA_",
    "ENUM_NSYS_",
    "NVTX_",
)
NSYS_TABLES = frozenset(
    {"StringIds", "EXPORT_META_DATA", "ANALYSIS_DETAILS", "DIAGNOSTIC_EVENT", "PROCESSES"}
    | {"CUDA_CALLCHAINS", "SAMPLING_CALLCHAINS", "COMPOSITE_EVENTS"}
)


def is_nsys_table(name: str) -> bool:
    """Say whether Nsight Systems writes a table of this name that we read."""
    return name in NSYS_TABLES or name.startswith(NSYS_TABLE_PREFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysDatabase:
    """An open export. `tables` maps each real table to its stored columns."""

    path: Path
    "The file as the user knows it; `uri` may point at a private copy."
    uri: str
    conn: sqlite3.Connection = field(repr=False)
    tables: Mapping[str, tuple[str, ...]]

    def has(self, table: str, *columns: str) -> bool:
        """Say whether the table exists with all these columns."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def actual(self, table: str) -> str:
        """Return a table's name in this file: `..._KERNEL_V2` where there is no `..._KERNEL`."""
        if table in self.tables:
            return table
        versions = [t for t in self.tables if _version(t, table) is not None]
        return max(versions, key=lambda t: _version(t, table) or 0, default=table)

    def num_rows(self, table: str) -> int:
        """Return the number of rows; 0 for a table that is not there."""
        if table not in self.tables:
            return 0
        return int(self.conn.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])


def _version(name: str, table: str) -> int | None:
    match = re.fullmatch(re.escape(table) + r"_V(\d{1,4})", name)
    return int(match[1]) if match else None


@contextmanager
def open_nsys(path: Path, *, is_sound: bool = False) -> Iterator[NsysDatabase]:
    """Open `path` and check it; CaptureError for anything that is not a sound nsys export.

    `is_sound` leaves out the check of the file's structure, which reads every page of it.
    """
    with reading(path):
        _check_header(path)
        before = _stamp(path)
        with tempfile.TemporaryDirectory(prefix="warpboard-nsys-") as private:
            uri = _uri(path, Path(private))
            with _damage_as_capture_error(path):
                yield from _open_sound(path, uri) if is_sound else _open_checked(path, uri)
        if _stamp(path) != before:
            raise CaptureError(path, "the file changed while it was read", "Import it again")


def _open_checked(path: Path, uri: str) -> Iterator[NsysDatabase]:
    check = StructureCheck(uri, path.stat().st_size)
    try:
        yield from _open_sound(path, uri)
        check.raise_if_damaged(path)
    finally:
        check.stop()


def _open_sound(path: Path, uri: str) -> Iterator[NsysDatabase]:
    conn = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        harden(conn)
        yield NsysDatabase(path=path, uri=uri, conn=conn, tables=_real_tables(path, conn))
    finally:
        conn.close()


@contextmanager
def _damage_as_capture_error(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            # It is our copy that found no room; the capture is sound.
            raise OSError(errno.ENOSPC, "No space left on device") from exc
        why = " ".join(str(exc).split())[:200]
        raise CaptureError(path, f"SQLite cannot read it ({why})", DAMAGED) from exc


def _check_header(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(100)
    if size == 0:
        raise CaptureError(path, "the file is empty (0 bytes)", "Export the report again")
    if head.startswith(LFS_MAGIC):
        raise CaptureError(
            path,
            "the file is a Git LFS pointer, not the capture itself",
            "Run `git lfs pull` where it comes from and import the real file",
        )
    if head.startswith(REPORT_MAGIC):
        raise CaptureError(
            path,
            "the file is an .nsys-rep report, not a SQLite export",
            "Import it as .nsys-rep, or run `nsys export --type sqlite` on it",
        )
    if not head.startswith(SQLITE_MAGIC):
        raise CaptureError(
            path,
            "the file is not a SQLite database (no SQLite header at byte 0)",
            "Give the output of `nsys export --type sqlite`",
        )
    _check_length(path, head, size)


def _check_length(path: Path, head: bytes, size: int) -> None:
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    is_count_valid = head[24:28] == head[92:96] and pages > 0
    if len(head) < 100 or (is_count_valid and not _is_wal(head) and page * pages > size):
        raise CaptureError(
            path,
            f"the file is cut off: its header announces {page * pages} bytes, it has {size}",
            "Copy or export it again",
        )


def _is_wal(head: bytes) -> bool:
    return head[18:20] == b"\x02\x02"


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _uri(path: Path, private: Path) -> str:
    """Return an immutable URI, of a recovered private copy where a WAL or journal lies beside."""
    if not sidecars(path):
        return immutable_uri(path)
    with _damage_as_capture_error(path):
        return immutable_uri(recovered_copy(path, private))


def _real_tables(path: Path, conn: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    rows = conn.execute("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master").fetchall()
    for kind, name, table, root, sql in rows:
        if kind == "table" and not (name == table and str(name) in str(sql)):
            raise CaptureError(
                path, f"the schema has two names for one table ({name!r}, {table!r})", DAMAGED
            )
        is_ours = is_nsys_table(str(table)) or is_nsys_table(str(name))
        if is_ours and kind in ("view", "trigger"):
            raise CaptureError(
                path,
                f"it contains a {kind} {name!r} where Nsight Systems writes plain tables",
                f"Remove the {kind}, or export the report again",
            )
        if is_ours and kind == "table" and not root:
            raise CaptureError(
                path, f"{name!r} is a virtual table, not a plain one", "Export the report again"
            )
    refuse_nvprof(path, {str(r[1]) for r in rows})
    names = [str(r[1]) for r in rows if r[0] == "table" and is_nsys_table(str(r[1]))]
    if not names:
        raise CaptureError(
            path,
            "the SQLite file has no table of Nsight Systems",
            "Give the output of `nsys export --type sqlite`",
        )
    return {name: _stored_columns(conn, name) for name in names}


def refuse_nvprof(path: Path, tables: set[str]) -> None:
    """Raise CaptureError for a database of nvprof, whose tables have similar names."""
    if "StringTable" in tables and "StringIds" not in tables:
        raise CaptureError(
            path,
            "this is a database of nvprof (the Visual Profiler's .nvvp), not of Nsight Systems",
            "Record the program with `nsys profile` and import that report",
        )


def _stored_columns(conn: sqlite3.Connection, table: str) -> tuple[str, ...]:
    quoted = table.replace('"', '""')
    rows = conn.execute(f'PRAGMA table_xinfo("{quoted}")').fetchall()
    return tuple(str(r[1]) for r in rows if not r[6])
