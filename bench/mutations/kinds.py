"""Ways in which a file comes to harm: disks, transfers, editors, scripts."""

import csv
import gzip
import io
import random
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

Damage = Callable[[bytes, random.Random], bytes]


def _flip_bit(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _flip_bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(8):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _cut_out(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 7, 64, 512, 4096)) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.choice((1, 4, 100))) + data[at:]


def _zero_block(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice((16, 512, 4096))
    at = rng.randrange(len(data)) // 512 * 512
    block = data[at : at + size]
    return data[:at] + bytes(len(block)) + data[at + size :]


def _repeat_block(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice((64, 512, 4096))
    at = rng.randrange(len(data))
    return data[: at + size] + data[at:]


def _copy_block(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice((64, 512, 4096))
    source, target = rng.randrange(len(data)), rng.randrange(len(data))
    block = data[source : source + size]
    return data[:target] + block + data[target + len(block) :]


def _append(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice((b"\0" * 100, b"garbage\n", data[:2000]))


def _lines(change: Callable[[list[bytes], random.Random], None]) -> Damage:
    def damage(data: bytes, rng: random.Random) -> bytes:
        lines = data.split(b"\n")
        change(lines, rng)
        return b"\n".join(lines)

    return damage


def _drop_line(lines: list[bytes], rng: random.Random) -> None:
    del lines[rng.randrange(len(lines))]


def _repeat_line(lines: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    lines.insert(at, lines[at])


def _swap_mark(lines: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    old, new = rng.choice(((b",", b";"), (b'"', b""), (b".", b","), (b":", b""), (b"1", b"I")))
    lines[at] = lines[at].replace(old, new, rng.choice((1, 1, 100)))


def _change_digit(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    at = next((i for i in range(start, len(data)) if data[i : i + 1].isdigit()), None)
    if at is None:
        return data + b"0"
    digit = rng.choice(b"0123456789".replace(data[at : at + 1], b""))
    return data[:at] + bytes([digit]) + data[at + 1 :]


def _interleave(lines: list[bytes], rng: random.Random) -> None:
    lines.insert(rng.randrange(len(lines)), b"WARNING: something the program printed")


BINARY: dict[str, Damage] = {
    "bit flip": _flip_bit,
    "bytes": _flip_bytes,
    "cut off": _truncate,
    "cut out": _cut_out,
    "inserted": _insert,
    "zeroed": _zero_block,
    "repeated": _repeat_block,
    "copied over": _copy_block,
    "appended": _append,
}
TEXT: dict[str, Damage] = {
    "line lost": _lines(_drop_line),
    "line twice": _lines(_repeat_line),
    "mark changed": _lines(_swap_mark),
    "line between": _lines(_interleave),
    "digit changed": _change_digit,
}


def _swap_pages(data: bytes, rng: random.Random) -> bytes:
    pages = len(data) // PAGE_BYTES
    first, other = sorted(rng.sample(range(1, pages), 2)) if pages > 2 else (0, 0)
    out = bytearray(data)
    for target, source in ((first, other), (other, first)):
        block = data[source * PAGE_BYTES : (source + 1) * PAGE_BYTES]
        out[target * PAGE_BYTES : target * PAGE_BYTES + len(block)] = block
    return bytes(out)


def _half_page(data: bytes, rng: random.Random) -> bytes:
    """Lose the second half of a page, where SQLite keeps the rows."""
    at = rng.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES + PAGE_BYTES // 2
    return data[:at] + bytes(PAGE_BYTES // 2) + data[at + PAGE_BYTES // 2 :]


def _page_header(data: bytes, rng: random.Random) -> bytes:
    """Change a byte of a b-tree page's header or of its cell pointers."""
    page = rng.randrange(len(data) // PAGE_BYTES)
    at = page * PAGE_BYTES + (100 if page == 0 else 0) + rng.randrange(40)
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _cells(values: Sequence[object]) -> Damage:
    """Write an odd value into a few cells of one column that is read."""

    def damage(data: bytes, rng: random.Random) -> bytes:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
            conn.deserialize(data)
            conn.execute("PRAGMA journal_mode=MEMORY")
            table, column = _some_column(conn, rng)
            (last,) = conn.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()
            for _ in range(rng.choice((1, 1, 5, 50))):
                where = (rng.choice(values), rng.randint(1, last or 1))
                with suppress(sqlite3.Error):  # a NOT NULL column refuses NULL
                    conn.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', where)
            return conn.serialize()

    return damage


def _some_column(conn: sqlite3.Connection, rng: random.Random) -> tuple[str, str]:
    names = [r[0] for r in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    read = [t for t in READ_COLUMNS if t in names]
    filled = [t for t in read if conn.execute(f'SELECT 1 FROM "{t}" LIMIT 1').fetchone()]
    if not filled:
        return "sqlite_master", "name"
    table = rng.choice(filled)
    present = {r[1] for r in conn.execute(f'PRAGMA table_info("{table}")')}
    return table, rng.choice([c for c in READ_COLUMNS[table].split() if c in present])


def _swap_names(data: bytes, rng: random.Random) -> bytes:
    """Give two columns of a table each other's name, as a script that mixes them up would."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        conn.deserialize(data)
        conn.execute("PRAGMA journal_mode=MEMORY")
        columns = ("start", "end")
        table = rng.choice(tuple(READ_COLUMNS))
        with suppress(sqlite3.Error):
            for old, new in ((columns[0], "x_"), (columns[1], columns[0]), ("x_", columns[1])):
                conn.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{old}" TO "{new}"')
        return conn.serialize()


def _json_value(data: bytes, rng: random.Random) -> bytes:
    """Put something else where a time, a duration or an id stands."""
    key = rng.choice((b'"ts":', b'"dur":', b'"correlation":', b'"stream":', b'"cat":'))
    places = [m.end() for m in re.finditer(re.escape(key), data)]
    if not places:
        return data + b","
    at = rng.choice(places)
    end = min(e for e in (data.find(b",", at), data.find(b"}", at), len(data)) if e > 0)
    other = rng.choice((b"NaN", b"Infinity", b"-1", b"1e300", b'"7"', b"null", b"[]", b"true"))
    return data[:at] + b" " + other + data[end:]


def _joined_lines(lines: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(max(len(lines) - 1, 1))
    lines[at : at + 2] = [b"".join(lines[at : at + 2])]


def _swapped_fields(lines: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    fields = lines[at].split(b",")
    if len(fields) > 2:
        first, other = rng.sample(range(len(fields)), 2)
        fields[first], fields[other] = fields[other], fields[first]
    lines[at] = b",".join(fields)


def _with_semicolons(data: bytes) -> bytes:
    """Write the table as a spreadsheet of another country does."""
    out = io.StringIO()
    rows = csv.reader(io.StringIO(data.decode("utf-8", "replace")))
    csv.writer(out, delimiter=";", quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue().encode()


def _everywhere(data: bytes, rng: random.Random) -> bytes:
    """What an editor or a script does to a whole file."""
    change: Callable[[bytes], bytes] = rng.choice(
        (
            lambda d: d.replace(b"\n", b"\r\n"),
            lambda d: b"\xef\xbb\xbf" + d,
            lambda d: d.replace(b'"', b""),
            _with_semicolons,
            lambda d: d.replace(b".", b","),
            lambda d: d + b"\n" + d,
            lambda d: d.decode("utf-8", "replace").encode("utf-16"),
        )
    )
    return change(data)


PAGE_BYTES = 4096
READ_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid "
    "demangledName shortName gridX blockX registersPerThread staticSharedMemory",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId returnValue",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end copyKind srcKind dstKind bytes correlationId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId correlationId globalPid",
    "NVTX_EVENTS": "start end eventType textId text globalTid endGlobalTid domainId",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "start deviceId bytes memKind memoryOperationType address",
    "StringIds": "value",
    "ANALYSIS_DETAILS": "duration",
}
SQLITE: dict[str, Damage] = {
    "pages swapped": _swap_pages,
    "half a page": _half_page,
    "page header": _page_header,
    "cell of another type": _cells((None, "seven", 1.5, b"\x00\xff")),
    "huge cell": _cells((1 << 62, -(1 << 62), (1 << 63) - 1, -1, 1 << 40)),
    "column names": _swap_names,
}
JSON: dict[str, Damage] = {"json value": _json_value}
CSV: dict[str, Damage] = {
    "lines joined": _lines(_joined_lines),
    "fields swapped": _lines(_swapped_fields),
    "whole file": _everywhere,
}


def mutate(data: bytes, name: str, rng: random.Random) -> tuple[bytes, str]:
    """Return the damaged bytes and what was done. Half of the gzip files are damaged inside."""
    is_inside = name.endswith(".gz") and rng.random() < 0.5
    is_text = is_inside or name.endswith((".csv", ".log"))
    kinds = BINARY | TEXT if is_text else BINARY
    if name.endswith(".sqlite"):
        kinds = kinds | SQLITE
    elif is_text:
        kinds = kinds | (JSON if ".json" in name else CSV)
    kind = rng.choice([*sorted(kinds), "bit flip", "bit flip", "bit flip"])
    if is_inside:
        damaged = kinds[kind](gzip.decompress(data), rng)
        return gzip.compress(damaged, 1, mtime=0), f"{kind}, inside"
    return kinds[kind](data, rng), kind
