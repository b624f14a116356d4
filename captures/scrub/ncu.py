"""Clean the process and host columns of an ncu table, and the process lines of its log."""

import csv
import re

from captures.private import PrivateWords

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
