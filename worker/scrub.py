"""Take private facts out of captures before they leave the host.

Environment variables, host and user names, absolute paths and the list of other processes are not
needed for any number the product shows. What a report's counters, kernels and ranges say stays.
"""

import contextlib
import csv
import getpass
import gzip
import os
import re
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path

from core.config import ROOT

PATH_REMOVED = "(path removed)"
_PATH = re.compile(r"(?<![\w/)\]>])(?:~|\.{1,2})?/(?:[\w.+@%=,-]+/)+[\w.+@%=,-]*")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\[^\s\"']+")
_PRIVATE_KEY = re.compile(
    r"ENVIRON|ENV_VAR|HOST|USER|PATH|COMMAND|CMD_?LINE|ARGUMENT|WORKING_DIR|DISPLAY_NAME|EXECUTABLE|"
    r"FILE_?NAME|OUTPUT|OUTUPT|INPUT|ADDRESS|PASSWORD|TOKEN",
    re.I,
)
_PUBLIC_SYSTEM_FACTS = frozenset(
    [
        "CpuCores",
        "CpuSpeedMhz",
        "CpuArchitecture",
        "CpuDescription",
        "NvDriverVersion",
        "CudaDriverVersion",
        "OsDescription",
        "HardwarePlatform",
        "LinuxParanoidLevel",
    ]
)
_TABLES_OF_EVENTS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "NVTX_EVENTS",
)

_REFERS_TO_STRINGS = re.compile(r"^\s*(\w+)\s+INTEGER\b.*\bREFERENCES StringIds\b", re.M)
_STRING_COLUMNS = ("nameId", "textId", "demangledName", "shortName", "mangledName")


def private_words() -> tuple[str, ...]:
    """Return this host's and user's names, as far as they are telling."""
    words = {socket.gethostname(), socket.getfqdn(), os.environ.get("USER", "")}
    with contextlib.suppress(KeyError, OSError):  # a container's user may have no name
        words.add(getpass.getuser())
    dull = {"localhost", "root", "user", "ubuntu", "worker", "runner"}
    return tuple(sorted(w for w in words if len(w) >= 4 and w.lower() not in dull))


class Scrubber:
    """Rewrites text: paths outside the product become a mark, private words too."""

    def __init__(self, words: Iterable[str] | None = None) -> None:
        found = tuple(words) if words is not None else private_words()
        parts = "|".join(re.escape(w) for w in found)
        self._words = re.compile(rf"(?<!\w)(?:{parts})(?!\w)") if parts else None
        home = str(Path.home())
        self._prefixes = [(f"{ROOT}/", "")] + ([(f"{home}/", "~/")] if len(home) > 1 else [])

    def text(self, value: str) -> str:
        """Return `value` without absolute paths and private words."""
        if "/" in value or "\\" in value:
            value = _WINDOWS_PATH.sub(PATH_REMOVED, _PATH.sub(PATH_REMOVED, value))
        return self._words.sub("(name removed)", value) if self._words else value

    def shorten(self, value: str) -> str:
        """Return `value` with the product's own and the home folder's prefix taken off."""
        for prefix, short in self._prefixes:
            value = value.replace(prefix, short)
        return self._words.sub("(name removed)", value) if self._words else value


def scrub_nsys_sqlite(path: Path, scrubber: Scrubber | None = None) -> tuple[str, ...]:
    """Remove private facts from an nsys export in place; return what kinds were looked for.

    Tables and columns differ by version, so each is probed, never assumed.
    """
    scrub = scrubber or Scrubber()
    with tempfile.TemporaryDirectory(prefix=".scrub-", dir=path.parent) as folder:
        copy = Path(folder) / "export.sqlite"  # no journal lies beside it
        shutil.copyfile(path, copy)
        _clean(copy, scrub)
        os.replace(copy, path)
    return ("environment", "hostname", "user", "paths", "processes")


def _clean(path: Path, scrub: Scrubber) -> None:
    db = sqlite3.connect(path)
    try:
        tables = {
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        with db:
            _drop_system_facts(db, tables)
            _drop_private_keys(db, tables)
            _drop_processes(db, tables)
            _drop_unused_strings(db, tables)
            _scrub_all_text(db, tables, scrub)
        db.execute("VACUUM")
    finally:
        db.close()


def _drop_system_facts(db: sqlite3.Connection, tables: set[str]) -> None:
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        marks = ",".join("?" * len(_PUBLIC_SYSTEM_FACTS))
        db.execute(
            f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name IS NULL OR name NOT IN ({marks})",
            tuple(_PUBLIC_SYSTEM_FACTS),
        )
        if "devStateName" in _columns(db, "TARGET_INFO_SYSTEM_ENV"):
            db.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET devStateName = ''")
    if "ProcessStreams" in tables:  # the program's whole stdout and stderr
        db.execute("DELETE FROM ProcessStreams")
    if "ANALYSIS_FILE" in tables:
        db.execute("DELETE FROM ANALYSIS_FILE")


def _drop_private_keys(db: sqlite3.Connection, tables: set[str]) -> None:
    for table in ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA"):
        if table in tables and {"name", "value"} <= set(_columns(db, table)):
            keys = [k for (k,) in db.execute(f"SELECT DISTINCT name FROM {table}") if k]
            private = [(k,) for k in keys if _PRIVATE_KEY.search(k)]
            db.executemany(f"DELETE FROM {table} WHERE name = ?", private)


def _drop_processes(db: sqlite3.Connection, tables: set[str]) -> None:
    """Keep only the processes and threads that took part in what was recorded."""
    taking_part: set[int] = set()
    for table in _TABLES_OF_EVENTS:
        if table in tables:
            columns = _columns(db, table)
            column = "globalPid" if "globalPid" in columns else "globalTid"
            rows = db.execute(f"SELECT DISTINCT {column} & -16777216 FROM {table}")
            taking_part |= {pid for (pid,) in rows if pid is not None}
    kept = ",".join(str(pid) for pid in sorted(taking_part))
    for table, column in (("PROCESSES", "globalPid"), ("ThreadNames", "globalTid")):
        if table in tables and column in _columns(db, table):
            db.execute(f"DELETE FROM {table} WHERE ({column} & -16777216) NOT IN ({kept})")


def _drop_unused_strings(db: sqlite3.Connection, tables: set[str]) -> None:
    """Delete the texts that no row left refers to: whole environments and outputs are among them.

    Which columns refer to texts is written into the schema by every exporter since 2021.
    """
    if "StringIds" not in tables:
        return
    db.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
    for table in sorted(tables - {"StringIds"}):
        (schema,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        for column in {*_REFERS_TO_STRINGS.findall(schema), *_STRING_COLUMNS}:
            if column in _columns(db, table):
                db.execute(
                    f'INSERT OR IGNORE INTO used SELECT DISTINCT "{column}" FROM "{table}" '
                    f"WHERE typeof(\"{column}\") = 'integer'"
                )
    db.execute("DELETE FROM StringIds WHERE id NOT IN (SELECT id FROM used)")
    db.execute("DROP TABLE temp.used")


def _scrub_all_text(db: sqlite3.Connection, tables: set[str], scrub: Scrubber) -> None:
    db.create_function("scrub", 1, lambda v: scrub.text(v) if isinstance(v, str) else v)
    for table in sorted(tables):
        if table.startswith(("ENUM_", "sqlite_")):
            continue
        for column, kind in _columns(db, table).items():
            if "TEXT" in kind.upper() or not kind:
                db.execute(
                    f'UPDATE "{table}" SET "{column}" = scrub("{column}") '
                    f'WHERE typeof("{column}") = \'text\' AND scrub("{column}") <> "{column}"'
                )


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    return {row[1]: row[2] or "" for row in db.execute(f'PRAGMA table_info("{table}")')}


NCU_PRIVATE_COLUMNS = ("Host Name",)


def scrub_ncu_csv(source: Path, target: Path, scrubber: Scrubber | None = None) -> tuple[str, ...]:
    """Copy an ncu CSV page to gzip without its host column; rows may be ragged."""
    scrub = scrubber or Scrubber()
    with (
        open(source, newline="", encoding="utf-8", errors="replace") as file,
        gzip.open(target, "wt", newline="", encoding="utf-8") as out,
    ):
        writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
        drop: set[int] = set()
        has_header = False
        for row in csv.reader(file):
            if not has_header and row and row[0] == "ID":
                has_header = True
                drop = {i for i, name in enumerate(row) if name in NCU_PRIVATE_COLUMNS}
            if has_header and row:
                writer.writerow([scrub.shorten(v) for i, v in enumerate(row) if i not in drop])
    return ("hostname",)


def scrub_json_gz(source: Path, target: Path, scrubber: Scrubber | None = None) -> tuple[str, ...]:
    """Copy a PyTorch trace (gzip or plain) to gzip, line by line, paths shortened."""
    scrub = scrubber or Scrubber()
    with open(source, "rb") as probe:
        is_gzip = probe.read(2) == b"\x1f\x8b"
    opener = gzip.open if is_gzip else open
    with (
        opener(source, "rt", encoding="utf-8", errors="replace") as file,
        gzip.open(target, "wt", encoding="utf-8", compresslevel=6) as out,
    ):
        for line in file:
            if '"traceName"' in line:
                line = re.sub(r'("traceName"\s*:\s*")[^"]*(")', r"\1trace.json\2", line)
            out.write(scrub.shorten(line))
    return ("hostname", "paths")
