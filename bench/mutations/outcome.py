"""Read damaged files in processes under limits, and judge what came out."""

import csv
import gzip
import hashlib
import io
import json
import resource
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from analysis.readers import read
from analysis.tables import FRAMES, CaptureTables
from bench.mutations.kinds import READ_COLUMNS
from captures.pickle_data import load_data
from core.errors import CaptureError, ToolUnavailableError

MAX_MEMORY_BYTES = 6 << 30
_STRUCTURAL = frozenset({"cat", "ph", "action", "state", "stage"})
"""Fields whose value says what a record is, so that another value is another structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What came out of one file; `numbers` is a hash of every table and headline number."""

    outcome: str
    message: str = ""
    numbers: str = ""
    warnings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    path: Path
    whole: Fingerprint | None
    original: Path | None


def judge(fingerprint: Fingerprint) -> tuple[str, str]:
    """Return (outcome, message)."""
    return fingerprint.outcome, fingerprint.message


class _Late(BaseException):
    """Raised by the alarm; no `except Exception` may swallow it."""


def _alarm(*_: object) -> None:
    raise _Late


def prepare(seconds: int) -> None:
    """Put this process under its limits."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _alarm)
    globals()["_seconds"] = seconds


_seconds = 60


def work(task: Task) -> Fingerprint:
    """Read one file and compare it with the whole one."""
    signal.alarm(_seconds)
    try:
        tables = read(task.path)
    except (CaptureError, ToolUnavailableError) as exc:
        text = str(exc)
        is_one_line = "\n" not in text and Path(task.path).name in text
        return Fingerprint(outcome="error" if is_one_line else "traceback", message=text)
    except MemoryError:
        return Fingerprint(outcome="memory", message="MemoryError")
    except _Late:
        return Fingerprint(outcome="hang", message=f"over {_seconds} s")
    except Exception:
        return Fingerprint(outcome="traceback", message=traceback.format_exc(limit=-4))
    finally:
        signal.alarm(0)
    numbers, warnings = fingerprint(tables), frozenset(w.code + w.message for w in tables.warnings)
    if task.whole is None or task.original is None:
        return Fingerprint(outcome="whole", numbers=numbers, warnings=warnings)
    if numbers == task.whole.numbers:
        outcome = "same numbers"
    elif warnings - task.whole.warnings:
        outcome = "different, warned"
    elif structure(task.path) == structure(task.original):
        outcome = "valid other value"
    else:
        outcome = "different without warning"
    return Fingerprint(outcome=outcome, message=f"structure of {task.original.name} changed")


def fingerprint(tables: CaptureTables) -> str:
    """Return a hash of every number that the product would show."""
    digest = hashlib.sha256()
    digest.update(json.dumps([dict(tables.summary), dict(tables.memory)], default=str).encode())
    for name in FRAMES:
        frame: pd.DataFrame | None = getattr(tables, name)
        if frame is not None:
            digest.update(name.encode() + frame.to_csv(index=False).encode("utf-8", "replace"))
    return digest.hexdigest()


def structure(path: Path) -> str:
    """Return a hash of the file's structure by an independent parse; its free values left out."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    digest = hashlib.sha256()
    if data.startswith(b"SQLite format 3"):
        _sqlite_structure(path, digest)
    elif data.startswith(b"NVR\0"):
        digest.update(b"blocks checked by the reader; no checksum, free values")
    elif data[:1] == b"\x80":
        _shape(load_data(data), digest, "")
    elif data.lstrip()[:1] == b"{":
        _shape(json.loads(data.decode("utf-8", "replace"), strict=False), digest, "")
    else:
        text = data.decode("utf-8", "replace")
        rows = list(csv.reader(io.StringIO(text.replace("\0", "0"))))
        # A row whose share of the whole is printed as 0.0 leaves no trace in the others.
        # A launch of ncu's details page has any number of rule messages.
        rule = next((r.index("Rule Name") for r in rows if "Rule Name" in r), 1 << 30)
        shown = [
            len(r)
            for r in rows
            if any(r) and r[0] != "0.0" and (len(r) <= rule or r[rule] in ("", "Rule Name"))
        ]
        digest.update(json.dumps(shown).encode())
    return digest.hexdigest()


def _shape(value: Any, digest: Any, key: str) -> None:
    stack = [(value, key)]
    while stack:
        item, name = stack.pop()
        if isinstance(item, dict):
            digest.update(b"{" + ",".join(sorted(map(str, item))).encode("utf-8", "replace"))
            stack.extend((v, str(k)) for k, v in sorted(item.items(), key=lambda p: str(p[0])))
        elif isinstance(item, (list, tuple)):
            digest.update(b"[%d" % len(item))
            if name != "frames":  # a stack is one free value
                stack.extend((v, name) for v in item)
        elif name in _STRUCTURAL:
            digest.update(str(item).encode("utf-8", "replace"))
        else:
            digest.update(type(item).__name__.replace("float", "int").encode())


def _sqlite_structure(path: Path, digest: Any) -> None:
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    digest.update(str(connection.execute("PRAGMA quick_check").fetchall()).encode())
    names = connection.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY 1")
    for (name,) in names.fetchall():
        table = name.decode("utf-8", "replace")
        if table not in READ_COLUMNS:
            continue
        rows = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
        if not rows[0]:
            continue
        columns = [c[1] for c in connection.execute(f'PRAGMA table_info("{table}")')]
        digest.update(f"{table} {columns} {rows[0]}".encode())
        for column in (c.decode("utf-8", "replace") for c in columns):
            types = f'SELECT typeof("{column}"), count(*) FROM "{table}" GROUP BY 1'
            digest.update(str(connection.execute(types).fetchall()).encode())
    connection.close()


@contextmanager
def reading_worker(
    context: SpawnContext, num_workers: int, seconds: int
) -> Iterator[Callable[[list[Task]], list[Fingerprint]]]:
    """Give a function that reads tasks in processes; one that dies counts against its task."""
    pools: list[Any] = []

    def start() -> Any:
        pool = context.Pool(num_workers, initializer=prepare, initargs=(seconds,))
        pools.append(pool)
        return pool

    def read_all(tasks: list[Task]) -> list[Fingerprint]:
        pool = pools[-1] if pools else start()
        waiting = [pool.apply_async(work, (task,)) for task in tasks]
        fingerprints: list[Fingerprint] = []
        for result in waiting:
            try:
                fingerprints.append(result.get(timeout=2 * seconds))
            except Exception as exc:  # the process was killed, or is stuck in native code
                fingerprints.append(Fingerprint(outcome="hang", message=f"no answer ({exc!r})"))
                pool.terminate()
                pools.remove(pool)
                pool = start()
                rest = tasks[len(fingerprints) :]
                return fingerprints + read_all(rest)
        return fingerprints

    with _nameless_main():
        try:
            yield read_all
        finally:
            for pool in pools:
                pool.terminate()
                pool.join()


@contextmanager
def _nameless_main() -> Iterator[None]:
    """Keep `spawn` from running the parent's main program in its children.

    Where Streamlit's test runner has left a page as `__main__`, each child would run that page and
    die, and be made again for ever.
    """
    kept = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = kept
