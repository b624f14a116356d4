"""Load pickles that hold data only: dictionaries, lists, flat tuples, numbers and text.

A pickle is a program. Before anything is built, the whole program is scanned: every opcode that
could name or call code is refused, and so is what could exhaust memory or time (a memo index beyond
the file, lengths beyond the file, tuples in tuples, whose hash can take exponential time). Only
then does the standard unpickler run, with `find_class` refusing as a second wall.
"""

import io
import pickle
import pickletools
import re
import sys
from collections.abc import Iterator
from typing import Any

_PLAIN = 1
_SCALAR = 2
_MARK = 3
_TUPLE = 4
_STOP = 5
_PUT = 6
_SIZED = 7
_LINE = 8
_FORBIDDEN = 0

_FIXED = {
    **{c: (_PLAIN, 0) for c in b"012]}aelsud"},
    **{c: (_SCALAR, 0) for c in b"N)\x88\x89"},
    **{c: (_TUPLE, 0) for c in b"t\x85\x86\x87"},
    ord("("): (_MARK, 0),
    ord("."): (_STOP, 0),
    0x94: (_PUT, 0),
    ord("q"): (_PUT, 1),
    ord("r"): (_PUT, 4),
    ord("h"): (_PLAIN, 1),
    ord("j"): (_PLAIN, 4),
    0x80: (_PLAIN, 1),
    0x95: (_PLAIN, 8),
    ord("K"): (_SCALAR, 1),
    ord("M"): (_SCALAR, 2),
    ord("J"): (_SCALAR, 4),
    ord("G"): (_SCALAR, 8),
}
_SIZED_BYTES = {
    **{c: 1 for c in b"UC\x8a\x8c"},
    **{c: 4 for c in b"TBX\x8b"},
    **{c: 8 for c in b"\x8d\x8e\x96"},
}
_LINES = frozenset(b"ILFSVg")
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}
_MAX_LONG_BYTES = 64


class PickleRefusedError(ValueError):
    """Report a pickle that is damaged, or holds more than data; `offset` is the byte in it."""

    def __init__(self, offset: int, why: str) -> None:
        self.offset = offset
        super().__init__(f"{why} at byte {offset}")


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("the pickle refers to objects outside it")


def load_data(data: bytes, *, is_sound: bool = False) -> Any:
    """Return the object in `data`; PickleRefusedError where it is not data alone, or damaged.

    `is_sound`: this process has just pickled it, from data that it had checked.
    """
    if not is_sound:
        check_data_only(data)
        _check_hashes(data)
    try:
        return _DataUnpickler(io.BytesIO(data)).load()
    # The unpickler raises nearly any exception on damaged input; none of it is our bug.
    except Exception as exc:
        raise PickleRefusedError(0, f"the pickle is damaged ({exc})") from exc


def _build_table() -> list[tuple[int, int]]:
    table = [(_FORBIDDEN, 0)] * 256
    for code, entry in _FIXED.items():
        table[code] = entry
    for code, width in _SIZED_BYTES.items():
        table[code] = (_SIZED, width)
    for code in _LINES:
        table[code] = (_LINE, 0)
    table[ord("p")] = (_LINE, 1)
    return table


def _run_pattern() -> re.Pattern[bytes]:
    """Match harmless opcodes up to a `_PLAIN` one, after which none before it matters.

    They are those of fixed length, and integers of 6 to 8 bytes: a snapshot is full of addresses.
    """

    def any_of(*kinds: int) -> bytes:
        by_width: dict[int, bytes] = {}
        for code, (kind, width) in _FIXED.items():
            if kind in kinds:
                by_width[width] = by_width.get(width, b"") + re.escape(bytes([code]))
        return b"|".join(b"[%b]" % codes + b"." * width for width, codes in by_width.items())

    address = rb"\x8a(?:\x06.{6}|\x07.{7}|\x08.{8})"
    plain, passed = any_of(_PLAIN), any_of(_SCALAR, _MARK) + rb"|\x94|" + address
    pattern = b"(?s)(?:(?:%b)++|(?:%b)++(?:%b))++"
    if sys.version_info < (3, 11, 5):  # matches nested possessive repeats wrongly; this is slower
        pattern = b"(?s)(?>(?:(?>(?:%b)+)|(?>(?:%b)+)(?:%b))+)"
    return re.compile(pattern % (plain, passed, plain))


_BIG_BINARY = re.compile(rb"\x8a[\x08-\x40]")
_BIG_DECIMAL = re.compile(rb"[IL]-?(\d{19,400})L?\n")
_HASH_MODULUS = sys.hash_info.modulus
_MAX_ALIKE = 200
_TABLE = _build_table()
_RUN = _run_pattern()


def check_data_only(data: bytes) -> None:
    """Scan the opcodes without building anything; PickleRefusedError names the first bad one."""
    table, end, pos = _TABLE, len(data), 0
    run, from_mark = 0, False  # scalars since the last value that is none, or since a mark
    while pos < end:
        code, start = data[pos], pos
        kind, width = table[code]
        pos += 1 + width
        if kind == _SCALAR:
            run += 1
        elif kind == _PLAIN:
            run, from_mark = 0, False
            if long := _RUN.match(data, start):
                pos = long.end()
        elif kind == _PUT:
            _check_memo_index(int.from_bytes(data[start + 1 : pos], "little"), start)
        elif kind == _SIZED:
            pos += _sized_length(data, start, width)
            run += 1
        elif kind == _MARK:
            run, from_mark = 0, True
        elif kind == _LINE:
            pos = _line_end(data, start)
            run, from_mark = (0, False) if code == ord("g") else (run + (not width), from_mark)
        elif kind == _TUPLE:
            if not (from_mark if code == ord("t") else run >= code - 0x84):
                raise PickleRefusedError(start, "a tuple of other than plain values")
            run, from_mark = 0, False
        elif kind == _STOP:
            if pos != end:
                raise PickleRefusedError(pos, f"{end - pos} bytes follow the end of the pickle")
            return
        else:
            name = _NAMES.get(code, f"byte 0x{code:02x}")
            raise PickleRefusedError(start, f"{name} is not a data opcode")
    raise PickleRefusedError(end, "the pickle is cut off: it has no end")


def _check_hashes(data: bytes) -> None:
    """Refuse many whole numbers of one hash: as keys of a dictionary their time is quadratic.

    Numbers below 2**61 hash to themselves; addresses take 6 or 7 bytes.
    """
    hashes: dict[str, set[int]] = {}
    for at, value in _big_integers(data):
        alike = hashes.setdefault(str(value % _HASH_MODULUS), set())
        if len(alike) > _MAX_ALIKE:
            raise PickleRefusedError(at, "too many integers with the same hash")
        alike.add(value)


def _big_integers(data: bytes) -> Iterator[tuple[int, int]]:
    """Give where whole numbers of 8 bytes and more may stand, and their values."""
    for match in _BIG_BINARY.finditer(data):
        start = match.end()
        yield match.start(), int.from_bytes(data[start : start + data[start - 1]], "little")
    for match in _BIG_DECIMAL.finditer(data):
        yield match.start(), int(match[1])


def _sized_length(data: bytes, start: int, width: int) -> int:
    first = start + 1 + width
    size = int.from_bytes(data[start + 1 : first], "little")
    is_integer = data[start] in b"\x8a\x8b"
    if size > len(data) - first or (is_integer and size > _MAX_LONG_BYTES):
        name = _NAMES[data[start]]
        raise PickleRefusedError(start, f"a {name} of {size} bytes extends past the end")
    return size


def _line_end(data: bytes, start: int) -> int:
    stop = data.find(b"\n", start)
    if stop < 0:
        raise PickleRefusedError(start, "the pickle is cut off within a line")
    code = data[start]
    if code == ord("p"):
        index = data[start + 1 : stop].strip()
        _check_memo_index(int(index) if index.isdigit() and len(index) < 12 else 1 << 60, start)
    if code in b"IL" and stop - start > 4 * _MAX_LONG_BYTES:
        raise PickleRefusedError(start, "an integer has too many digits")
    return stop + 1


def _check_memo_index(index: int, start: int) -> None:
    """The memo is an array up to its largest index, and no writer counts faster than it writes."""
    if index > start:
        raise PickleRefusedError(start, f"memo index {index} is beyond what was written")
