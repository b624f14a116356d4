"""Copy a capture that is text (traces, tables, logs) block by block, cleaned on the way."""

import codecs
import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from captures.kinds import CaptureKind
from captures.opening import is_gzip, open_capture, utf16_of
from captures.private import PrivateWords, clean
from captures.scrub.latency import PrivateColumns
from captures.scrub.ncu import TableColumns, without_process_paths
from captures.scrub.torch_trace import IncompleteValueError, TraceCleaner

_BLOCK_BYTES = 8 << 20
_MAX_LINE_BYTES = 64 << 20
_LEARNED_BYTES = 8 << 20
"""How much of the file is read beforehand for the names of people and hosts in it."""
_COMMAND = re.compile(r"(?m)^((?:Command line|Command|argv)\s{0,9}[:=]\s{0,9}).*$")

Rewrite = Callable[[str], str]


def scrub_text(
    path: Path, kind: CaptureKind, dest: Path, words: PrivateWords, *, is_packed: bool = False
) -> tuple[str, ...]:
    """Write the cleaned copy and return what was removed. Bytes beyond ASCII are unchanged."""
    removed: dict[str, None] = {}
    _learn(path, kind, words)
    rewrite = _rewriter(kind, words, removed)
    with (
        open_capture(path) as source,
        _created(dest, is_packed=is_packed or is_gzip(path)) as out,
    ):
        for block in _blocks(source):
            _write(out, rewrite, block, source)
    return tuple(removed)


def _rewriter(kind: CaptureKind, words: PrivateWords, removed: dict[str, None]) -> Rewrite:
    if kind is CaptureKind.TORCH_TRACE:
        return TraceCleaner(words, removed).cleaned
    columns = TableColumns(removed) if kind is CaptureKind.NCU_CSV else None
    latencies = PrivateColumns(words, removed) if kind is CaptureKind.LATENCY_CSV else None
    is_table = kind is not CaptureKind.NCU_LOG

    def rewrite(text: str) -> str:
        if kind in (CaptureKind.NCU_CSV, CaptureKind.NCU_LOG):
            text = without_process_paths(text, removed)
        if columns is not None:
            text = columns.cleaned(text, words)
        if latencies is not None:
            text = latencies.cleaned(text)
        if "Command" in text or "argv" in text:
            new = _COMMAND.sub(r"\1(removed)", text)
            if new != text:
                removed["command lines"] = None
            text = new
        return clean(text, words, removed, has_numbers=is_table)

    return rewrite


def _learn(path: Path, kind: CaptureKind, words: PrivateWords) -> None:
    """Read names of people and hosts in the first blocks: one may stand before its field."""
    learn = TraceCleaner(words, {}).learn if kind is CaptureKind.TORCH_TRACE else words.learn
    with open_capture(path) as source:
        seen = 0
        for block in _blocks(source):
            if len(block) > 2 * _LEARNED_BYTES:  # all on one line; the header stands at an end
                block = block[:_LEARNED_BYTES] + b"\n" + block[-_LEARNED_BYTES:]
            learn(block.decode("latin-1"))
            seen += len(block)
            if seen >= _LEARNED_BYTES:
                return


def _write(out: IO[bytes], rewrite: Rewrite, block: bytes, source: BinaryIO) -> None:
    while True:
        try:
            # Latin-1 maps every byte to one character and back; patterns see ASCII alone.
            out.write(rewrite(block.decode("latin-1")).encode("latin-1", "replace"))
            return
        except IncompleteValueError:
            more = source.read(_BLOCK_BYTES) if len(block) < _MAX_LINE_BYTES else b""
            if not more:
                raise EOFError("a private field has no end") from None
            block += more


@contextmanager
def _created(dest: Path, *, is_packed: bool) -> Iterator[IO[bytes]]:
    with dest.open("wb") as file:
        if not is_packed:
            yield file
            return
        # Neither the file's name nor the time goes into the header: equal contents, equal bytes.
        with gzip.GzipFile("", "wb", compresslevel=4, fileobj=file, mtime=0) as packed:
            yield cast(IO[bytes], packed)


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    """Give blocks that end at a line's end, so that no match lies across two; UTF-8 for UTF-16."""
    rest = b""
    for block in _as_utf8(source):
        cut = block.rfind(b"\n") + 1
        if not cut and len(rest) + len(block) < _MAX_LINE_BYTES:
            rest += block
            continue
        cut = cut or _quiet_cut(block)
        yield rest + block[:cut]
        rest = block[cut:]
    if rest:
        yield rest


def _as_utf8(source: BinaryIO) -> Iterator[bytes]:
    block = source.read(_BLOCK_BYTES)
    utf16 = utf16_of(block)
    decode = codecs.getincrementaldecoder(utf16)("replace").decode if utf16 else None
    while block:
        yield decode(block).encode("utf-8", "replace") if decode else block
        block = source.read(_BLOCK_BYTES)


def _quiet_cut(block: bytes) -> int:
    """Cut a line without end after a closed object: traces written on one line."""
    return block.rfind(b"},") + 2 if b"}," in block else len(block)
