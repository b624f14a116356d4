"""Write the copy of a capture that is stored, with what names a person or a machine taken out.

Only what identifies: host and user names, home folders, command lines, environment variables.
Kernel names, times and sizes stay as they are. Formats that cannot be rewritten safely are copied
whole, and the answer says what may still be in them.
"""

import gzip
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, cast

from analysis.privacy_snapshot import scrub_snapshot
from analysis.tables import CaptureKind
from captures.opening import is_gzip, open_capture, reading
from core.errors import CaptureError

MAY_REMAIN = "may remain: "
"""Prefix of entries that name what could not be taken out."""
_REPORTS = "environment variables, host, user and command line (the format cannot be rewritten)"
_CHUNK_BYTES = 8 << 20
_MAX_LINE_BYTES = 64 << 20

# A path's person: /home/NAME, /Users/NAME, C:\Users\NAME, with JSON's `\\` and `\/` too. A name in
# Users may hold blanks.
_SPACED_HOME = re.compile(
    rb"(?i)([\\/](?:Users|Documents and Settings)(?:\\\\|\\?/|\\))"
    rb"([^/\\\"':;,<>|\r\n]{1,64})(?=[\\/])"
)
_HOME = re.compile(
    rb"(?i)([\\/](?:home|Users|Documents and Settings)(?:\\\\|\\?/|\\))([^/\\\"'\s:,;<>|]+)"
)
_HOME_WORDS = (b"home", b"users", b"documents and settings")
_INDUCTOR = re.compile(rb"(torchinductor_)[^/\\\"'\s]+")
_ROOT = re.compile(rb"/root/(?=[^/\s\"]+/)")
_JSON_TEXT = re.compile(
    rb'("(?:[Hh]ost_?[Nn]ame|hostname|user_?name|user|cmd_?line|command_?line|cwd|traceName|'
    rb'trace_name|argv|HOSTNAME|USER|HOME)"\s*:\s*)"(?:[^"\\]|\\.)*"'
)
_JSON_HOST_IN_LABEL = re.compile(rb'("labels"\s*:\s*")([^"\\]*?@[^"\\]*)(")')
_NCU_PROCESS = re.compile(rb"(==\w+==.*?process \d+ )\([^)\n]*\)")
_COMMAND_WORDS = (b"Command", b"argv")
_COMMAND = re.compile(rb"(?m)^((?:Command line|Command|argv)\s*[:=]\s*).*$")


def scrub(path: Path, kind: CaptureKind, dest: Path) -> tuple[str, ...]:
    """Write the storable copy of `path` to `dest`; return what was removed.

    Entries that start with `MAY_REMAIN` name what the format kept. Raises CaptureError where the
    file cannot be read; `dest` is then not left behind.
    """
    part = dest.with_name(dest.name + ".part")
    try:
        with reading(path):
            removed = _write(path, kind, part)
        part.replace(dest)
    finally:
        part.unlink(missing_ok=True)
    return removed


def _write(path: Path, kind: CaptureKind, dest: Path) -> tuple[str, ...]:
    if kind is CaptureKind.NSYS_SQLITE:
        from analysis.readers.nsys_scrub import scrub_nsys_sqlite

        return tuple(scrub_nsys_sqlite(path, dest))
    if kind in (CaptureKind.NSYS_REP, CaptureKind.NCU_REP):
        shutil.copyfile(path, dest)
        return (MAY_REMAIN + _REPORTS,)
    if kind is CaptureKind.MEMORY_SNAPSHOT:
        return scrub_snapshot(path, dest)
    if kind is CaptureKind.BUNDLE:
        raise CaptureError(path, "a bundle is cleaned file by file", "Import the folder")
    return _scrub_text(path, kind, dest)


def _scrub_text(path: Path, kind: CaptureKind, dest: Path) -> tuple[str, ...]:
    removed: dict[str, int] = {}
    with open_capture(path) as source, _created(dest, is_packed=is_gzip(path)) as out:
        blocks = iter(lambda: source.read(_CHUNK_BYTES), b"")
        for block in _whole_lines(blocks, path):
            if block.startswith((b"\xff\xfe", b"\xfe\xff")):
                text = b"".join([block, *blocks]).decode("utf-16", "replace")
                block = text.encode("utf-8")
            out.write(_clean(block, kind, removed))
    return tuple(removed)


def _created(dest: Path, *, is_packed: bool) -> AbstractContextManager[IO[bytes]]:
    if is_packed:
        return cast(AbstractContextManager[IO[bytes]], gzip.open(dest, "wb", compresslevel=4))
    return dest.open("wb")


def _whole_lines(blocks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Regroup blocks to end at a line's end, so that no match lies across two of them."""
    rest = b""
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if not cut and len(rest) + len(block) < _MAX_LINE_BYTES:
            rest += block
            continue
        cut = cut or _quiet_cut(block)
        yield rest + block[:cut]
        rest = block[cut:]
    if rest:
        yield rest


def _quiet_cut(block: bytes) -> int:
    """Cut a line without end after a closed object: traces written on one line."""
    return block.rfind(b"},") + 2 if b"}," in block else len(block)


def _clean(block: bytes, kind: CaptureKind, removed: dict[str, int]) -> bytes:
    lower = block.lower()
    if any(word in lower for word in _HOME_WORDS):  # finding no word is faster than no match
        block = _replace(_SPACED_HOME, rb"\1user", block, "home folders", removed)
        block = _replace(_HOME, rb"\1user", block, "home folders", removed)
    block = _replace(_ROOT, rb"/home/user/", block, "home folders", removed)
    block = _replace(_INDUCTOR, rb"\1user", block, "user names in cache folders", removed)
    if kind is CaptureKind.TORCH_TRACE:
        block = _replace(_JSON_TEXT, rb'\1""', block, "host, user and command line fields", removed)
        block = _replace(_JSON_HOST_IN_LABEL, rb"\1\3", block, "host labels", removed)
    elif kind is CaptureKind.NCU_CSV:
        block = _scrub_ncu(block, removed)
    if kind in (CaptureKind.NCU_CSV, CaptureKind.NCU_LOG):
        block = _replace(_NCU_PROCESS, rb"\1(program)", block, "process paths", removed)
    if any(word in block for word in _COMMAND_WORDS):
        block = _replace(_COMMAND, rb"\1(removed)", block, "command lines", removed)
    return block


def _replace(
    pattern: re.Pattern[bytes], by: bytes, block: bytes, what: str, removed: dict[str, int]
) -> bytes:
    new, count = pattern.subn(by, block)
    if count and new != block:
        removed[what] = removed.get(what, 0) + count
    return new


_NCU_ROW = re.compile(
    rb'(?m)^("?\d+"?[,;\t]"?\d+"?[,;\t])("(?:[^"]|"")*"|[^,;\t\n]*)([,;\t])("(?:[^"]|"")*"|[^,;\t\n]*)'
)


def _scrub_ncu(block: bytes, removed: dict[str, int]) -> bytes:
    """Keep the base name of Process Name and replace Host Name: columns 3 and 4 of every row."""

    def clean(match: re.Match[bytes]) -> bytes:
        process, host = match[2], match[4]
        base = process.strip(b'"').replace(b"\\", b"/").rsplit(b"/", 1)[-1]
        quote = b'"' if process.startswith(b'"') else b""
        if base != process.strip(b'"'):
            removed["process paths"] = removed.get("process paths", 0) + 1
        plain_host = host.strip(b'"')
        if plain_host not in (b"127.0.0.1", b"localhost", b""):
            removed["host name"] = removed.get("host name", 0) + 1
            host = quote + b"127.0.0.1" + quote
        return match[1] + quote + base + quote + match[3] + host

    return _NCU_ROW.sub(clean, block)
