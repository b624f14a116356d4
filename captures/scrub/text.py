"""Copy a capture that is text (traces, tables, logs) block by block, cleaned on the way.

Of an ncu table the process and host columns are cleaned, of its log the process lines. Of a table
of latencies texts in columns of people, hosts and secrets go, numbers stay; what is private only
where two cells stand together (a folder and a name, a host and its port) goes too.
"""

import codecs
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, BinaryIO, cast

from captures.kinds import CaptureKind
from captures.opening import is_gzip, open_capture, utf16_of
from captures.private import REMOVED, PrivateWords, clean, private_field
from captures.scrub.torch_trace import IncompleteValueError, TraceCleaner

_DELIMITERS = ",;\t|"
_KINDS = ("user", "host", "serial numbers", "secrets", "command line")
_NUMBER = re.compile(r"\s*[-+]?[\d.,]{0,40}(?:[eE][-+]?\d{1,4})?\s*\Z", re.ASCII)


class PrivateColumns:
    """Empties the private columns of one table, block by block; the first block has its header."""

    def __init__(self, words: PrivateWords, removed: dict[str, None]) -> None:
        self._words = words
        self._removed = removed
        self._delimiter = ""
        self._private: dict[int, str] = {}
        self._plain: set[str] = set()

    def cleaned(self, text: str) -> str:
        """Return the block without private texts; one that has none comes back as it is."""
        lines = text.splitlines(keepends=True)
        if not self._delimiter:
            header = next((n for n, line in enumerate(lines) if _width(line) > 1), None)
            if header is None:
                return text
            self._note_header(lines[header])
            lines, before = lines[header + 1 :], lines[: header + 1]
        else:
            before = []
        return "".join([*before, *map(self._row, lines)])

    def _note_header(self, line: str) -> None:
        self._delimiter = max(_DELIMITERS, key=line.count)
        for number, name in enumerate(_cells(line, self._delimiter)):
            kind = private_field(name.strip())
            if kind in _KINDS and "latency" not in name.lower():
                self._private[number] = str(kind)

    def _row(self, line: str) -> str:
        shape = line.translate(_SHAPE)  # a table repeats its texts, and counts up its numbers
        if shape in self._plain:
            return line
        cells = _cells(line, self._delimiter)
        is_changed = False
        for number, kind in self._private.items():
            if number < len(cells) and not _NUMBER.match(cells[number]):
                self._words.add(cells[number].strip())
                self._removed[kind] = None
                cells[number], is_changed = REMOVED, True
        for number in range(len(cells) - 1):
            if is_private_together(cells[number].strip(), cells[number + 1].strip()):
                self._removed["texts over two cells"] = None
                cells[number], is_changed = REMOVED, True
                if not _NUMBER.match(cells[number + 1]):
                    cells[number + 1] = REMOVED
        if not is_changed:
            if not self._private and len(self._plain) < _MAX_SHAPES:
                self._plain.add(shape)
            return line
        out = io.StringIO()
        end = line[len(line.rstrip("\r\n")) :]
        csv.writer(out, delimiter=self._delimiter, lineterminator=end).writerow(cells)
        return out.getvalue()


_SHAPE = str.maketrans("123456789", "0" * 9)
_MAX_SHAPES = 1 << 14
_PORT = re.compile(r"\d{4,5}\Z", re.ASCII)
_ANY_PORT = "45123"
"One that makes no host of what is none: others are those of services."
_ROOT = re.compile(r"[/~\\]|[A-Za-z]:[\\/]", re.ASCII)
_DOMAIN = re.compile(r"[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\Z", re.ASCII)
_PERSON = re.compile(r"[\w.+-]{1,64}\Z", re.ASCII)
_LABEL = re.compile(r"(?:\w{1,20}_)?(?:token|secret|password|passwd|api_?key|user|login)\Z", re.I)


@lru_cache(maxsize=1 << 14)
def is_private_together(first: str, second: str) -> bool:
    """Say whether two cells, neither of them private alone, are so one behind the other."""
    if not first or not second or _NUMBER.match(first):
        return False
    if _NUMBER.match(second):
        return bool(_PORT.match(second)) and _is_cut(f"{first}:{_ANY_PORT}", first)
    if second.startswith("@") and _DOMAIN.match(second[1:]):
        return bool(_PERSON.match(first))
    ways = [""]
    if _ROOT.match(first):
        ways.append("\\" if "\\" in first else "/")
    if _DOMAIN.match(second):
        ways.append(".")
    if _LABEL.match(first):
        ways.append("=")
    head = re.split(r"[/\\]", second.lstrip("/\\"), maxsplit=1)[0]
    return any(_is_cut(first + way + second, head) for way in ways)


def _is_cut(whole: str, part: str) -> bool:
    cleaned = clean(whole)
    return cleaned != whole and part not in cleaned and clean(part) == part


def _width(line: str) -> int:
    return 1 + max(line.count(d) for d in _DELIMITERS)


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])


_PROCESS = "==PROF=="
_PROCESS_LINE = re.compile(r"(==[A-Z]{1,12}==[^\n]{0,200}?process \d{1,20} )\([^)\n]{0,4096}\)?")
_FIELD = r'(?:"(?:[^"]|"")*+"|[^,;\t\n"]*+)'
_LOOPBACK = ("127.0.0.1", "localhost", "")
_MAX_HEADER_CHARS = 1 << 20


def without_process_paths(text: str, removed: dict[str, None]) -> str:
    """Return the log's text with `(program)` for the path of each process."""
    if _PROCESS[:2] not in text or "process " not in text:
        return text
    new = _PROCESS_LINE.sub(r"\1(program)", text)
    if new != text:
        removed["process paths"] = None
    return new


class TableColumns:
    """Cleans the columns Process Name and Host Name of every table, in any position."""

    def __init__(self, removed: dict[str, None]) -> None:
        self._removed = removed
        self._rows: list[tuple[re.Pattern[str], bool]] = []

    def cleaned(self, text: str, words: PrivateWords) -> str:
        """Return the block; a header in it holds for the lines after it and for later blocks."""
        parts, last = [], 0
        for start, end in _headers(text):
            parts += [self._cleaned_rows(text[last:start], words), text[start:end]]
            self._rows = _row_patterns(text[start:end])
            last = end
        return "".join([*parts, self._cleaned_rows(text[last:], words)])

    def _cleaned_rows(self, text: str, words: PrivateWords) -> str:
        for pattern, is_host in self._rows:
            replace = self._host if is_host else self._process
            text = pattern.sub(lambda m, r=replace: m[1] + r(m[2], words), text)  # type: ignore[misc]
        return text

    def _process(self, cell: str, _: PrivateWords) -> str:
        plain = cell.strip('"')
        base = plain.replace("\\", "/").rsplit("/", 1)[-1]
        if base != plain:
            self._removed["process paths"] = None
        return f'"{base}"' if cell.startswith('"') else base

    def _host(self, cell: str, words: PrivateWords) -> str:
        if cell.strip('"') in _LOOPBACK:
            return cell
        words.add(cell)
        self._removed["host name"] = None
        return '"127.0.0.1"' if cell.startswith('"') else "127.0.0.1"


def _headers(text: str) -> list[tuple[int, int]]:
    """Return where the lines lie that name the columns."""
    headers = []
    at = 0
    while (at := _first_of(text, at)) >= 0:
        start = text.rfind("\n", max(at - _MAX_HEADER_CHARS, 0), at) + 1
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        headers.append((start, end))
        at = end
    return headers


def _first_of(text: str, at: int) -> int:
    places = [text.find(name, at) for name in ("Process Name", "Host Name")]
    return min((p for p in places if p >= 0), default=-1)


def _row_patterns(header: str) -> list[tuple[re.Pattern[str], bool]]:
    counts = {separator: header.count(separator) for separator in ",;\t"}
    separator = max(counts, key=lambda s: counts[s])
    try:
        names = next(csv.reader([header], delimiter=separator), [])
    except csv.Error:
        return []
    return [
        (re.compile(rf"(?m)^((?:{_FIELD}{separator}){{{names.index(name)}}})({_FIELD})"), is_host)
        for name, is_host in (("Process Name", False), ("Host Name", True))
        if name in names and names.index(name) < 100
    ]


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
            yield cast("IO[bytes]", packed)


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
