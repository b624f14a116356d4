"""Clean a table of latencies: texts in columns of people, hosts and secrets go, numbers stay.

What is private only where two cells stand together (a folder and a name, a host and its port) goes
too.
"""

import csv
import io
import re
from functools import lru_cache

from captures.private import REMOVED, PrivateWords, clean, private_field

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
