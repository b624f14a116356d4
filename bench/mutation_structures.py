"""Files that are well formed and mean harm: every format changed at its structure, read in a child.

Where `bench.mutation_kinds` damages bytes, here the document is taken apart and put together again:
values of other types and sizes, repeated, nested and shared parts, columns renamed, schemas with
triggers and views, manifests beside captures.
"""

import copy
import csv
import gzip
import io
import json
import pickle
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from analysis.read_job import UNEXPECTED
from app.reading import file_job, read_jobs
from captures.contents import file_sha256
from captures.manifest import MANIFEST
from core.errors import AppError
from core.spec import JobSpec

ODD: tuple[Any, ...] = (None, True, -1, 0, 2**31, 2**63, -(2**70), 1e308, float("nan"), "", "x")
ODD += ("7", "\ud800", "a" * 100_000, "../../x", "\x00", [], {}, [[]], {"a": {}}, [0] * 1000, 0.5)
FAILURES = ("traceback", "over a limit", "no sound answer")
BATCH = 40
MAX_FILE_BYTES = 2 << 20

Change = Callable[[bytes, random.Random], bytes]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a document, those of long lists thinned."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 20_000:
        item = waiting.pop()
        pairs = list(item.items()) if isinstance(item, dict) else list(enumerate(item))[:300]
        found += [(item, key) for key, _ in pairs]
        waiting += [v for _, v in pairs if isinstance(v, (dict, list)) and v]
    return found


def _change_tree(value: Any, rng: random.Random) -> Any:
    """Make one to four changes to a tree of dictionaries and lists; it is changed in place."""
    changes = [rng.choice(_TREE_CHANGES) for _ in range(rng.randrange(1, 5))]
    if changes.count(_repeat) > 1:  # what is repeated twice over fills the memory of this process
        changes = [_put_odd if change is _repeat else change for change in changes]
    for change in changes:
        places = _places(value)
        if not places:
            return value
        container, key = rng.choice(places)
        with suppress(KeyError, IndexError, TypeError):
            change(container, key, rng)
    return value


def _put_odd(container: Any, key: Any, rng: random.Random) -> None:
    container[key] = copy.deepcopy(rng.choice(ODD))


def _drop(container: Any, key: Any, _: random.Random) -> None:
    del container[key]


def _repeat(container: Any, key: Any, rng: random.Random) -> None:
    """The same object again and again: a pickle shares it, JSON writes it out."""
    part = container[key] if isinstance(container[key], list) else container
    if isinstance(part, list) and part:
        part.extend([rng.choice(part)] * rng.choice((2, 50, 500)))


def _nest(container: Any, key: Any, rng: random.Random) -> None:
    inner = container[key]
    for _ in range(rng.choice((3, 60, 400))):
        inner = [inner] if rng.random() < 0.5 else {"a": inner}
    container[key] = inner


def _rename(container: Any, key: Any, rng: random.Random) -> None:
    other = rng.choice(list(container))
    container[other], container[key] = container[key], container[other]


def _scale(container: Any, key: Any, rng: random.Random) -> None:
    if isinstance(container[key], (int, float)):
        container[key] = container[key] * rng.choice((-1, 1000, 10**9, 10**15))


_TREE_CHANGES = (_put_odd, _put_odd, _put_odd, _drop, _repeat, _nest, _rename, _scale)


def _trace(data: bytes, rng: random.Random) -> bytes:
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = document["traceEvents"]
    start = rng.randrange(max(len(events) - 400, 1))
    document["traceEvents"] = events[start : start + 400]
    text = json.dumps(_change_tree(document, rng)).encode()
    return gzip.compress(text, 1) if rng.random() < 0.2 else text


def _snapshot(data: bytes, rng: random.Random) -> bytes:
    document = pickle.loads(data)  # our own capture
    document["device_traces"] = [trace[:200] for trace in document["device_traces"]]
    return pickle.dumps(_change_tree(document, rng), rng.choice((0, 2, 4)))


def _table(data: bytes, rng: random.Random) -> bytes:
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")
    rows = list(csv.reader(io.StringIO(text)))[:60]
    for _ in range(rng.randrange(1, 6)):
        row = rng.choice(rows) if rng.random() < 0.6 else rows[0]
        if not row:
            continue
        at = rng.randrange(len(row))
        rng.choice(
            (
                lambda r, i: r.__setitem__(i, str(rng.choice(ODD))[:5000]),
                lambda r, i: r.insert(i, r[i]),
                lambda r, i: r.pop(i),
                lambda r, i: r.extend(r[:1] * rng.choice((1, 3000))),
                lambda r, i: rows.extend([list(r)] * rng.choice((1, 500))),
            )
        )(row, at)
    out = io.StringIO()
    csv.writer(out, delimiter=rng.choice(",,,;\t")).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def _log(data: bytes, rng: random.Random) -> bytes:
    words = data.split(b" ")
    at = rng.randrange(len(words))
    words[at : at + 1] = [words[at]] * rng.choice((1, 100, 5000))
    return rng.choice((b" ", b"", b"\n")).join(words)[:MAX_FILE_BYTES]


_STATEMENTS = (
    "CREATE TRIGGER x AFTER INSERT ON {t} BEGIN DELETE FROM StringIds; END",
    "CREATE VIEW v{n} AS SELECT * FROM {t}",
    'CREATE TABLE "t"", (SELECT 1) AS ""y{n}" (nameId INTEGER)',
    "CREATE INDEX i{n} ON {t} (abs(rowid))",
    "ALTER TABLE {t} RENAME TO renamed_{n}",
    "ALTER TABLE {t} ADD COLUMN g{n} INTEGER AS (abs(1) + {n})",
    'ALTER TABLE {t} DROP COLUMN "{c}"',
    "INSERT INTO {t} SELECT * FROM {t} LIMIT 2000",
    "DELETE FROM {t} WHERE rowid % 2",
    "DROP TABLE {t}",
    'UPDATE {t} SET "{c}" = ? WHERE rowid % 7 = 1',
    'UPDATE {t} SET "{c}" = ?',
    'UPDATE {t} SET "{c}" = "{c}" * 1000000007',
)


def _database(data: bytes, rng: random.Random) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        conn.deserialize(data)
        conn.execute("PRAGMA journal_mode=MEMORY")
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'ENUM%'"
        for _ in range(rng.randrange(1, 4)):
            table = rng.choice([r[0] for r in conn.execute(sql)] or ["StringIds"])
            quoted = '"' + table.replace('"', '""') + '"'
            columns = [r[1] for r in conn.execute(f"PRAGMA table_info({quoted})")] or ["id"]
            names = {"t": quoted, "c": rng.choice(columns), "n": str(rng.randrange(99))}
            statement = rng.choice(_STATEMENTS).format(**names)
            value = rng.choice([v for v in ODD if not isinstance(v, (list, dict, float))])
            with suppress(sqlite3.Error, OverflowError, UnicodeError):
                conn.execute(statement, (value,) if "?" in statement else ())
        return conn.serialize()


def _report(data: bytes, rng: random.Random) -> bytes:
    """Change lengths and numbers of the messages within: bytes before and after text."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(out) - 8)
        out[at : at + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\0\0\0\0", out[at : at + 4][::-1]))
    return bytes(out)


def _changer(path: Path) -> Change | None:
    name = path.name
    if name.endswith((".json.gz", ".json")):
        return _trace
    endings = {".pickle": _snapshot, ".sqlite": _database, ".ncu-rep": _report, ".log": _log}
    return _table if ".csv" in name else endings.get(path.suffix)


def write_mutants(files: list[Path], count: int, seed: int, folder: Path) -> Iterator[Path]:
    """Write `count` files, or bundle folders, and give the path of each to import."""
    chosen = [(file, change) for file in files if (change := _changer(file)) is not None]
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        file, change = chosen[number % len(chosen)]
        if file.suffix == ".ncu-rep" and rng.random() < 0.8:
            file, change = chosen[0]  # each takes a process of its own
        place = folder / f"{number}"
        place.mkdir()
        path = place / file.name
        path.write_bytes(change(file.read_bytes(), rng))
        if rng.random() < 0.15:
            _make_bundle(path, rng)
            path = place
        yield path


def _make_bundle(path: Path, rng: random.Random) -> None:
    """Put a manifest with changes beside a capture."""
    capture = {"file": path.name, "kind": "log", "sha256": file_sha256(path)}
    capture["kind"] = rng.choice(("nsys_sqlite", "torch_trace", "memory_snapshot", "ncu_csv"))
    entry = {
        "pass": rng.choice(("clean", "nsys", "trace", "memory")),
        "process": 0,
        "status": "ok",
        "captures": [{**capture, "bytes": path.stat().st_size}],
        "result": {"samples_ns": [1000, 2000], "metrics": [{"name": "x", "value": 1}]},
    }
    document = {
        "schema_version": 1,
        "job": JobSpec(workload="decode", params={}).as_dict(),
        "status": "done",
        "gpu": {"model": "H100", "noise_floors": {"x": 0.1}, "peaks": {}},
        "environment": {"torch": "2.9"},
        "passes": [entry],
    }
    if rng.random() < 0.8:
        document = _change_tree(document, rng)
    (path.parent / MANIFEST).write_text(json.dumps(document))


def run_structures(files: list[Path], count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Read `count` mutants in children under limits; give (file, outcome, message) of each."""
    with tempfile.TemporaryDirectory() as place:
        mutants = write_mutants(files, count, seed, Path(place))
        while batch := [path for _, path in zip(range(BATCH), mutants, strict=False)]:
            jobs = [file_job([path]) for path in batch]
            with read_jobs(jobs, {"rules": None, "peaks": {}}, Path(place)) as found:
                for path, answer in zip(batch, found, strict=True):
                    outcome = _outcome(answer) if isinstance(answer, AppError) else "read"
                    yield path.name, outcome, str(answer) if outcome != "read" else ""


def _outcome(error: AppError) -> str:
    text = str(error)
    if UNEXPECTED in text:
        return "traceback"
    if "it was ended" in text or "its reader died" in text or "reading it was ended" in text:
        return "over a limit"
    return "no sound answer" if "no sound answer" in text else "error"
