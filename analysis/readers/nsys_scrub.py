"""Copy an nsys export without what names people, machines and folders.

Everything the reader uses stays, to the nanosecond. The copy is made row by row and what is deleted
from it is overwritten, so nothing is left in free pages. The source is only read.
"""

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from captures.database import sidecars
from captures.nsys_database import NsysDatabase, open_nsys
from captures.nsys_structure import harden
from core.errors import CaptureError

_METADATA = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA")
_KINDS = (
    ("environment variables", re.compile(r"ENVIRON|ENV_VAR")),
    ("user", re.compile(r"USER|LOGIN|OWNER")),
    ("host", re.compile(r"HOST|DISPLAY_NAME|IP_?ADDR|MAC_?ADDR|SERIAL|TARGET_NAME")),
    ("command line", re.compile(r"COMMAND|CMD|ARGUMENT|\bARGS?\b|EXECUT|APPLICATION_(?!PID)")),
    ("paths", re.compile(r"PATH|DIRECTORY|_DIR\b|WORKING|FILE|FOLDER")),
)
_KEPT_SYSTEM = re.compile(
    r"^(Cpu|Cuda|NvDriver|Os[DV]|Gpu|Has|Supports|Is[A-Z]|Hardware|Software|Supported|Linux|Export"
    r"|Ofed|Soc|dpti)"
)
_EMPTIED = {
    "PROCESSES": "process names",
    "ThreadNames": "thread names",
    "OSRT_FILE_ACCESS_DESCRIPTORS": "paths",
    "OSRT_FILE_ACCESS_EVENTS": "paths",
    "TARGET_INFO_NIC_INFO": "network devices",
    "TARGET_INFO_NETWORK_DEVICES": "network devices",
    "NET_NIC_METRIC": "network devices",
}
_STRING_COLUMNS = frozenset(
    {"nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName", "symbol"}
    | {"module", "fileNameId", "functionNameId", "keyId", "valueId", "typeNameId", "messageId"}
)
_NAMES_OF_ONE = frozenset({"demangledName", "shortName", "mangledName"})
_ROOTS = (
    "home|root|Users|tmp|mnt|media|data\\d*|workspace|opt|usr|var|etc|srv|scratch|lustre|gpfs|nfs|"
    "shared|projects?|lib\\w*|bin|sbin|run|proc|dev|private|Volumes|cluster|work|export|app|nix"
)
_ROOTED = re.compile(rf"(?<![\w.])/(?:{_ROOTS})/(?:[^\s\"'<>|:;,()]*/)?")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\(?:[^\\\"<>|:\r\n]{1,128}\\)*")
_COMMON_WORDS = frozenset({"root", "user", "localhost", "host", "ubuntu", "admin", "none", "true"})


def scrub_nsys_sqlite(source: Path, dest: Path) -> tuple[str, ...]:
    """Write the copy and return what was removed, e.g. ("environment variables", "host", "paths").

    CaptureError for a source that is not a sound export. `dest` is replaced in one step.
    """
    part = dest.with_name(dest.name + ".part")
    removed: dict[str, None] = {}
    try:
        part.unlink(missing_ok=True)
        with open_nsys(source) as database:
            with ThreadPoolExecutor(max_workers=1) as beside:
                reading = beside.submit(_used_strings, database)
                _compact_copy(database, part)
                used = reading.result()
            copy = sqlite3.connect(part, isolation_level=None)
            try:
                for what in _clean(copy, used):
                    removed[what] = None
            finally:
                copy.close()
        os.replace(part, dest)
    except OSError as exc:
        raise CaptureError(
            dest, f"the scrubbed copy cannot be written ({exc.strerror})", "Check space and access"
        ) from exc
    finally:
        for leftover in (part, part.with_name(part.name + "-journal")):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)
    return tuple(removed)


def copy_nsys_sqlite(source: Path, dest: Path) -> None:
    """Copy an export unchanged, with the rows of a write-ahead log beside it; CaptureError."""
    if not sidecars(source):
        shutil.copyfile(source, dest)
        return
    with open_nsys(source) as database:
        shutil.copyfile(unquote(urlsplit(database.uri).path), dest)


def _compact_copy(database: NsysDatabase, target: Path) -> None:
    """Copy row by row, so that nothing of the source's free pages and page ends comes along."""
    source = sqlite3.connect(database.uri, uri=True, isolation_level=None)
    try:
        source.execute("PRAGMA trusted_schema=OFF")
        source.execute("PRAGMA synchronous=OFF")  # it holds for the copy, which is not yet done
        source.execute("VACUUM INTO ?", (str(target),))
    finally:
        source.close()


def _used_strings(database: NsysDatabase) -> set[int]:
    """Return the ids of the strings to which any row refers that the copy keeps."""
    conn = sqlite3.connect(database.uri, uri=True, isolation_level=None)
    used: set[int] = set()
    try:
        harden(conn)
        for table, columns in _tables(conn).items():
            found = [c for c, _ in columns if c in _STRING_COLUMNS and table not in _EMPTIED]
            for group in _read_together(found):
                quoted = ", ".join(f'"{column}"' for column in group)
                for row in conn.execute(f'SELECT DISTINCT {quoted} FROM "{table}"'):
                    used.update(value for value in row if isinstance(value, int))
    finally:
        conn.close()
    return used


def _read_together(columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Group columns whose combinations are no more than their values: the names of one kernel."""
    names = tuple(c for c in columns if c in _NAMES_OF_ONE)
    return [*([names] if names else []), *((c,) for c in columns if c not in _NAMES_OF_ONE)]


def _clean(conn: sqlite3.Connection, used: set[int]) -> Iterator[str]:
    conn.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    conn.execute("PRAGMA trusted_schema=OFF")
    # What is deleted from here on is overwritten with zeros.
    conn.execute("PRAGMA secure_delete=ON")
    conn.execute("PRAGMA journal_mode=MEMORY")
    conn.execute("PRAGMA synchronous=OFF")
    conn.create_function("without_paths", 1, _stripped, deterministic=True)
    tables = _tables(conn)
    names = _private_names(conn, tables)
    yield from _clean_metadata(conn, tables)
    yield from _clean_system(conn, tables)
    for table, what in _EMPTIED.items():
        if table in tables and conn.execute(f'DELETE FROM "{table}"').rowcount > 0:
            yield what
    if _drop_strings(conn, tables, used):
        yield "unused strings"
    yield from _clean_texts(conn, tables, names)


def _tables(conn: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    """Return each plain table with its (column, declared type) pairs."""
    rows = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
    found = {}
    for (name,) in rows.fetchall():
        if not name.startswith("sqlite_"):
            quoted = name.replace('"', '""')
            info = conn.execute(f'PRAGMA table_info("{quoted}")').fetchall()
            found[name] = [(str(r[1]), str(r[2]).upper()) for r in info]
    return found


@lru_cache(maxsize=1 << 12)
def _kind_of(key: str) -> str | None:
    plain = key.upper()
    return next((what for what, pattern in _KINDS if pattern.search(plain)), None)


def _private_names(conn: sqlite3.Connection, tables: dict[str, list[tuple[str, str]]]) -> set[str]:
    """Return the host and user names that the metadata holds, to find them in messages too."""
    found = set()
    for table in (t for t in _METADATA if t in tables):
        for key, value in conn.execute(f"SELECT name, value FROM {table}"):
            text = str(value or "")
            if _kind_of(str(key)) in ("host", "user"):
                found.add(text)
            variable = re.match(r"(?:USER|LOGNAME|HOSTNAME|HOME)=(.+)", text)
            if variable:
                found.add(variable.group(1).rsplit("/", 1)[-1])
    return {n for n in found if len(n) >= 4 and n.lower() not in _COMMON_WORDS}


def _clean_metadata(
    conn: sqlite3.Connection, tables: dict[str, list[tuple[str, str]]]
) -> Iterator[str]:
    for table in (t for t in _METADATA if t in tables):
        for rowid, key, value in conn.execute(f"SELECT rowid, name, value FROM {table}").fetchall():
            what = _kind_of(str(key))
            if what is None and str(value) != _stripped(str(value)):
                what = "paths"
            if what is not None:
                conn.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
                if str(value or ""):
                    yield what


def _clean_system(
    conn: sqlite3.Connection, tables: dict[str, list[tuple[str, str]]]
) -> Iterator[str]:
    table = "TARGET_INFO_SYSTEM_ENV"
    if table not in tables:
        return
    for rowid, name, value in conn.execute(f"SELECT rowid, name, value FROM {table}").fetchall():
        if not _KEPT_SYSTEM.match(str(name)):
            conn.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
            if str(value or ""):
                yield "system description"
    if any(column == "devStateName" for column, _ in tables[table]):
        conn.execute(f"UPDATE {table} SET devStateName = ''")


def _drop_strings(
    conn: sqlite3.Connection, tables: dict[str, list[tuple[str, str]]], used: set[int]
) -> bool:
    """Delete the strings that no remaining row refers to."""
    if "StringIds" not in tables:
        return False
    conn.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
    conn.executemany("INSERT INTO used VALUES (?)", ((i,) for i in used))
    done = conn.execute("DELETE FROM StringIds WHERE id NOT IN (SELECT id FROM used)")
    conn.execute("DROP TABLE temp.used")
    return done.rowcount > 0


def _clean_texts(
    conn: sqlite3.Connection, tables: dict[str, list[tuple[str, str]]], names: set[str]
) -> Iterator[str]:
    """Cut absolute paths in every text, and known host and user names in messages."""
    for table, columns in tables.items():
        texts = [
            f'"{column}"' for column, declared in columns if "TEXT" in declared or not declared
        ]
        if not texts:
            continue
        has_path = " OR ".join(
            f"(typeof({c}) = 'text' AND (instr({c}, '/') OR instr({c}, '\\'))"
            f" AND {c} <> without_paths({c}))"
            for c in texts
        )
        cut = ", ".join(f"{c} = without_paths({c})" for c in texts)
        if conn.execute(f'UPDATE "{table}" SET {cut} WHERE {has_path}').rowcount > 0:
            yield "paths"
        if table == "StringIds" or table.startswith("NVTX"):
            continue
        for name in sorted(names, key=len, reverse=True):
            for c in texts:
                conn.execute(
                    f"UPDATE \"{table}\" SET {c} = replace({c}, ?, '(removed)') "
                    f"WHERE typeof({c}) = 'text' AND instr({c}, ?)",
                    (name, name),
                )


def _stripped(text: Any) -> Any:
    """Return a text without the folders of absolute paths; other values unchanged."""
    if not isinstance(text, str) or not ("/" in text or "\\" in text):
        return text
    return _WINDOWS.sub("", _ROOTED.sub("", text))
