"""Ways in which a file comes to harm: disks, transfers, editors, scripts."""

import gzip
import random
from collections.abc import Callable

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


def mutate(data: bytes, name: str, rng: random.Random) -> tuple[bytes, str]:
    """Return the damaged bytes and what was done. Half of the gzip files are damaged inside."""
    is_inside = name.endswith(".gz") and rng.random() < 0.5
    is_text = is_inside or name.endswith((".csv", ".log"))
    kinds = BINARY | TEXT if is_text else BINARY
    kind = rng.choice([*sorted(kinds), "bit flip", "bit flip", "bit flip"])
    if is_inside:
        damaged = kinds[kind](gzip.decompress(data), rng)
        return gzip.compress(damaged, 1, mtime=0), f"{kind}, inside"
    return kinds[kind](data, rng), kind
