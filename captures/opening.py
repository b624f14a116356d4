"""Open captures safely: gzip by content with a cap on what it may grow to, and one kind of error.

Every reader works inside `reading(path)`, which turns what a damaged file raises in the standard
library into a `CaptureError` that names the place.
"""

import errno
import gzip
import io
import re
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from core.errors import CaptureError

GZIP_MAGIC = b"\x1f\x8b"
MAX_EXPANDED_BYTES = 64 << 30
MAX_RATIO = 150
RATIO_FREE_BYTES = 64 << 20
"""Below this a high ratio is harmless. Real traces shrink 10 to 30 times."""
MAX_TEXT_BYTES = 1 << 30
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORTER = "Record a shorter capture, or raise WARPBOARD_READ_MEMORY_GB"


class _CappedReader(io.RawIOBase):
    """Pass bytes of a gzip stream on until it has grown beyond any real capture."""

    def __init__(self, stream: BinaryIO, path: Path, packed_bytes: int) -> None:
        self._stream = stream
        self._path = path
        self._limit = min(MAX_EXPANDED_BYTES, max(RATIO_FREE_BYTES, MAX_RATIO * packed_bytes))
        self._seen = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        chunk = self._stream.read(len(view))
        self._seen += len(chunk)
        if self._seen > self._limit:
            raise CaptureError(
                self._path,
                f"the compressed file grows beyond {self._limit >> 20} MiB, "
                f"more than {MAX_RATIO} times its size",
                "It is not a capture; if it is one, decompress it first",
            )
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._stream.close()
        super().close()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what damaged files raise into CaptureError. Our own CaptureErrors pass unchanged."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise CaptureError(
            path, f"the gzip data is damaged or cut off ({exc})", "Copy or export the file again"
        ) from exc
    except UnicodeError as exc:
        raise CaptureError(
            path, f"the text encoding is damaged ({exc})", "Export the file again"
        ) from exc
    except RecursionError as exc:
        raise CaptureError(
            path, "values are nested too deeply", "No capture is nested like this; export again"
        ) from exc
    except MemoryError as exc:
        raise CaptureError(
            path, f"reading it needs more memory than {_memory_limit()}", _SHORTER
        ) from exc
    except OSError as exc:
        if exc.errno == errno.ENOSPC:  # a full disk is not a fault of the capture
            raise
        if exc.errno == errno.EFBIG:
            where = "reading it was stopped: it wrote more than its disk limit allows"
            raise CaptureError(path, where, "Raise WARPBOARD_READ_DISK_GB") from exc
        raise CaptureError(
            path, f"cannot be read ({exc.strerror or exc})", "Check the path and its permissions"
        ) from exc


def _memory_limit() -> str:
    """Name the limit that `captures.sandbox` set for this process, if it did."""
    mapped, _ = resource.getrlimit(resource.RLIMIT_AS)
    if mapped == resource.RLIM_INFINITY:
        return "there is"
    return f"the {mapped / 2**30:.1f} GiB that reading a file of its size may map"


def is_gzip(path: Path) -> bool:
    """Return whether the file is gzip, by its first bytes."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


@contextmanager
def open_capture(path: Path) -> Iterator[BinaryIO]:
    """Give a binary stream of the file's content, decompressed if it is gzip, capped."""
    with path.open("rb") as raw:
        if raw.read(2) != GZIP_MAGIC:
            raw.seek(0)
            yield cast(BinaryIO, raw)
            return
        raw.seek(0)
        size = path.stat().st_size
        with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
            capped = _CappedReader(cast(BinaryIO, unpacked), path, size)
            yield cast(BinaryIO, io.BufferedReader(capped, 1 << 20))


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the whole (decompressed) content; CaptureError where it is larger than `limit`."""
    with open_capture(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise CaptureError(path, f"is larger than {limit >> 20} MiB", "Record a shorter capture")
    return data


def utf16_of(data: bytes) -> str | None:
    """Return the encoding of UTF-16 text, by its mark or by the zero bytes of its ASCII letters.

    PowerShell writes it with a mark, spreadsheets and `iconv` also without.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    head = data[:4096]
    zeros = head[0::2].count(0), head[1::2].count(0)
    few, many = len(head) // 40, len(head) // 3
    if zeros[0] <= few and zeros[1] > many:
        return "utf-16-le"
    return "utf-16-be" if zeros[1] <= few and zeros[0] > many else None


def decode_text(data: bytes) -> str:
    """Return text of any encoding that tools and shells write: UTF-8, UTF-16, Latin."""
    if utf16 := utf16_of(data):
        return data.decode(utf16, "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def read_text(path: Path) -> str:
    """Return the file's text, line ends unchanged."""
    return decode_text(read_bytes(path, MAX_TEXT_BYTES))


def clean_text(text: str) -> str:
    """Return the text without what cannot be stored: bytes that were not UTF-8, lone surrogates."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # halves of a pair that JSON wrote as an escape
        return _SURROGATE.sub("\ufffd", text)
