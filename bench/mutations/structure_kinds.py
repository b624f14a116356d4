"""How a file of each format is changed at its structure: taken apart and put together again.

Values of other types and sizes, repeated, nested and shared parts, columns renamed, schemas with
triggers and views, another page size or encoding, messages with other lengths.
"""

import copy
import csv
import gzip
import io
import json
import pickle
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (None, True, -1, 0, 2**31, 2**63, -(2**70), 1e308, float("nan"), "", "x")
ODD += ("7", "\ud800", "a" * 100_000, "../../x", "\x00", [], {}, [[]], {"a": {}}, [0] * 1000, 0.5)
MAX_FILE_BYTES = 2 << 20

Change = Callable[[bytes, random.Random], bytes]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a document, those of long lists thinned."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(places) < 20_000:
        item = waiting.pop()
        pairs = list(item.items()) if isinstance(item, dict) else list(enumerate(item))[:300]
        places += [(item, key) for key, _ in pairs]
        waiting += [v for _, v in pairs if isinstance(v, (dict, list)) and v]
    return places


def change_tree(value: Any, rng: random.Random) -> Any:
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


def _everywhere(container: Any, key: Any, rng: random.Random) -> None:
    """One key of all records of a list: absent, odd, of one value, negative or far away."""
    records = [r for r in container if isinstance(r, dict)] if isinstance(container, list) else []
    if not records:
        container[key] = copy.deepcopy(rng.choice(ODD))
        return
    name = rng.choice(list(rng.choice(records)) or ["ts"])
    odd, kind = rng.choice(ODD), rng.randrange(4)
    for record in records:
        old = record.get(name)
        if kind == 0:
            record.pop(name, None)
        elif kind > 1 and isinstance(old, (int, float)):
            record[name] = -old if kind == 2 else old * 10**9
        else:
            record[name] = copy.copy(odd) if not isinstance(odd, str) else odd[:200]


_TREE_CHANGES = (_put_odd, _put_odd, _put_odd, _drop, _repeat, _nest, _rename, _scale, _everywhere)


def _nested_ranges(rng: random.Random) -> list[dict[str, Any]]:
    depth = rng.choice((200, 5000))
    shared = {"ph": "X", "cat": rng.choice(("user_annotation", "cpu_op")), "pid": 1, "tid": 1}
    return [{**shared, "name": f"r{i}", "ts": i, "dur": 2 * depth - 2 * i} for i in range(depth)]


def _many_processes(rng: random.Random) -> list[dict[str, Any]]:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": rng.choice((0, 1, 1e300))}
    return [{**kernel, "pid": i, "tid": i, "args": {"stream": i, "device": i}} for i in range(3000)]


def _one_correlation(rng: random.Random) -> list[dict[str, Any]]:
    shared = {"ph": "X", "pid": 1, "tid": 1, "args": {"correlation": rng.choice((0, 7, "7", -1))}}
    cats = ("cuda_runtime", "kernel", "gpu_memcpy")
    return [{**shared, "cat": cats[i % 3], "name": "x", "ts": i, "dur": 5} for i in range(3000)]


def _flows(rng: random.Random) -> list[dict[str, Any]]:
    number = rng.choice((1, "1", None, 2**70))
    return [
        {
            "ph": "sft"[i % 3],
            "id": number,
            "cat": "fwdbwd",
            "name": "f",
            "pid": 1,
            "tid": 1,
            "ts": i,
        }
        for i in range(3000)
    ]


def _collectives(rng: random.Random) -> list[dict[str, Any]]:
    odd = {"Collective name": rng.choice((None, "allreduce", "x" * 9999)), "dtype": rng.choice(ODD)}
    odd |= {"In msg nelems": rng.choice(ODD), "Group size": rng.choice(ODD)}
    odd |= {"Process Group Ranks": rng.choice(("[0, 1, ...]", "[[", list(range(9999)), None))}
    shared = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum", "pid": 0, "tid": 7}
    return [{**shared, "ts": 10 * i, "dur": 5, "args": odd} for i in range(200)]


_EVENTS = (_nested_ranges, _many_processes, _one_correlation, _flows, _collectives)


def _trace(data: bytes, rng: random.Random) -> bytes:
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = document["traceEvents"]
    start = rng.randrange(max(len(events) - 400, 1))
    document["traceEvents"] = kept = events[start : start + 400]
    if rng.random() < 0.3:
        kept += rng.choice(_EVENTS)(rng)
    try:
        text = json.dumps(change_tree(document, rng)).encode()
    except RecursionError:  # nested deeper than this process itself can write
        return data
    return gzip.compress(text, 1) if rng.random() < 0.2 else text


def _snapshot(data: bytes, rng: random.Random) -> bytes:
    document = pickle.loads(data)  # our own capture
    document["device_traces"] = [trace[:200] for trace in document["device_traces"]]
    changed, protocol = change_tree(document, rng), rng.choice((0, 2, 4))
    try:
        return pickle.dumps(changed, protocol)
    except RecursionError:  # nested deeper than this process itself can write
        return data


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
    encoding = rng.choice(("utf-8",) * 6 + ("utf-16", "utf-16-le", "utf-8-sig", "cp1252"))
    packed = out.getvalue().encode(encoding, "replace")
    return gzip.compress(packed, 1) if rng.random() < 0.1 else packed


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
    'UPDATE {t} SET "{c}" = -"{c}"',
    'UPDATE {t} SET "{c}" = (SELECT "{c}" FROM {t} LIMIT 1)',
    'UPDATE {t} SET "{c}" = rowid * 1099511627776',
    'UPDATE {t} SET "{c}" = "{c}" || char(0, 8238, 27, 65279) || "{c}"',
    'UPDATE {t} SET "{c}" = zeroblob(1000)',
    'UPDATE {t} SET "{c}" = "{d}", "{d}" = "{c}"',
    'ALTER TABLE {t} RENAME COLUMN "{c}" TO "{c}_{n}"',
    "CREATE TABLE copy_{n} AS SELECT * FROM {t}",
    'CREATE UNIQUE INDEX u{n} ON {t} ("{c}" COLLATE NOCASE) WHERE "{c}" > {n}',
    "CREATE VIRTUAL TABLE f{n} USING fts5(a)",
    "PRAGMA user_version = -2147483648",
    "PRAGMA application_id = 252006674",
    "PRAGMA page_size = 512",
    "PRAGMA page_size = 65536",
    "PRAGMA auto_vacuum = 2",
    "VACUUM",
)
_SCHEMA_CHANGES = (
    "UPDATE sqlite_master SET rootpage = rootpage + 1 WHERE type = 'table' AND rowid % 3 = {n} % 3",
    "UPDATE sqlite_master SET rootpage = {n} WHERE name = {name}",
    "UPDATE sqlite_master SET sql = replace(sql, 'INT', 'VARCHAR') WHERE type = 'table'",
    "UPDATE sqlite_master SET sql = replace(sql, ')', ', PRIMARY KEY (x))') WHERE name = {name}",
    "UPDATE sqlite_master SET sql = sql || ' WITHOUT ROWID' WHERE name = {name}",
    "UPDATE sqlite_master SET sql = sql || ' STRICT' WHERE name = {name}",
    "UPDATE sqlite_master SET tbl_name = 'x{n}' WHERE name = {name}",
    "UPDATE sqlite_master SET type = 'view' WHERE name = {name}",
    "INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = {name}",
)
_HEADER_FIELDS = ((16, 2), (18, 1), (19, 1), (20, 1), (24, 4), (28, 4), (32, 4), (44, 4), (56, 4))
"""Page size, versions of writing and reading, reserved bytes, counters, free list, format, text."""


def _change_schema(conn: sqlite3.Connection, table: str, rng: random.Random) -> None:
    quoted = "'" + table.replace("'", "''") + "'"
    statement = rng.choice(_SCHEMA_CHANGES).format(n=rng.randrange(99), name=quoted)
    with suppress(sqlite3.Error):
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute(statement)


def _in_another_encoding(data: bytes, rng: random.Random) -> bytes:
    """Return the same tables in a database whose texts are UTF-16."""
    with closing(sqlite3.connect(":memory:")) as old, closing(sqlite3.connect(":memory:")) as new:
        old.deserialize(data)
        new.execute(f"PRAGMA encoding = '{rng.choice(('UTF-16le', 'UTF-16be'))}'")
        new.executescript("\n".join(old.iterdump()))
        return new.serialize()


def _database(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.05:
        data = _in_another_encoding(data, rng)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        conn.deserialize(data)
        conn.execute("PRAGMA journal_mode=MEMORY")
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'ENUM%'"
        for _ in range(rng.randrange(1, 4)):
            table = rng.choice([r[0] for r in conn.execute(sql)] or ["StringIds"])
            _change_table(conn, table, rng)
        if rng.random() < 0.1:
            _change_schema(conn, table, rng)
        changed = bytearray(conn.serialize())
    if rng.random() < 0.1:
        at, num_bytes = rng.choice(_HEADER_FIELDS)
        changed[at : at + num_bytes] = rng.randbytes(num_bytes)
    return bytes(changed)


def _change_table(conn: sqlite3.Connection, table: str, rng: random.Random) -> None:
    quoted = '"' + table.replace('"', '""') + '"'
    columns = [r[1] for r in conn.execute(f"PRAGMA table_info({quoted})")] or ["id"]
    names = {"t": quoted, "c": rng.choice(columns), "d": rng.choice(columns)}
    statement = rng.choice(_STATEMENTS).format(**names, n=str(rng.randrange(99)))
    value = rng.choice([v for v in ODD if not isinstance(v, (list, dict, float))])
    with suppress(sqlite3.Error, OverflowError, UnicodeError):
        conn.execute(statement, (value,) if "?" in statement else ())


def _report(data: bytes, rng: random.Random) -> bytes:
    """Change lengths and numbers of the messages within: bytes before and after text."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(out) - 8)
        out[at : at + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\0\0\0\0", out[at : at + 4][::-1]))
    return bytes(out)


def changer(path: Path) -> Change | None:
    """Return what changes files of this kind, by the end of the name."""
    name = path.name
    if name.endswith((".json.gz", ".json")):
        return _trace
    endings = {".pickle": _snapshot, ".sqlite": _database, ".ncu-rep": _report, ".log": _log}
    return _table if ".csv" in name else endings.get(path.suffix)


def write_made(folder: Path) -> list[Path]:
    """Write small captures of the formats of which no real one is kept here."""
    latency = ["iteration,latency_ms"] + [f"{i},{12 + i % 3}" for i in range(60)]
    source = [
        '"Kernel Name","gemm"',
        "#,Source,Address,Warp Stall Sampling (All Samples),Instructions Executed,stall_wait",
    ]
    source += [f'{i},"FFMA R{i}, R2, R3",0x{i}0,{i * 7},64,{i}' for i in range(60)]
    made = {"latency.csv": latency, "source.csv": source}
    for name, lines in made.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return [folder / name for name in made]
