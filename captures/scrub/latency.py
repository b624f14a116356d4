"""Clean a table of latencies: texts in columns of people, hosts and secrets go, numbers stay."""

import csv
import io
import re

from captures.private import REMOVED, PrivateWords, private_field

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
        if not self._private:
            return text
        return "".join([*before, *map(self._row, lines)])

    def _note_header(self, line: str) -> None:
        self._delimiter = max(_DELIMITERS, key=line.count)
        for number, name in enumerate(_cells(line, self._delimiter)):
            kind = private_field(name.strip())
            if kind in _KINDS and "latency" not in name.lower():
                self._private[number] = str(kind)

    def _row(self, line: str) -> str:
        cells = _cells(line, self._delimiter)
        is_changed = False
        for number, kind in self._private.items():
            if number < len(cells) and not _NUMBER.match(cells[number]):
                self._words.add(cells[number].strip())
                self._removed[kind] = None
                cells[number], is_changed = REMOVED, True
        if not is_changed:
            return line
        out = io.StringIO()
        end = line[len(line.rstrip("\r\n")) :]
        csv.writer(out, delimiter=self._delimiter, lineterminator=end).writerow(cells)
        return out.getvalue()


def _width(line: str) -> int:
    return 1 + max(line.count(d) for d in _DELIMITERS)


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])
