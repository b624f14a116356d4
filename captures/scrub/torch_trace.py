"""Drop the fields of a PyTorch trace whose value is private, in a block of its JSON text."""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from captures.private import Cleaner, PrivateWords, clean

_SIGN = re.compile(
    r"\"(?=[a-z][a-z-])(?:host|node|user|log(?:in|name)|cmd|command|cwd|pwd|argv|env|trace_?name"
    r"|home|ip|master_addr|serial|uuid|guid|e?mail|token|password|secret|api_?key)"
)
"""How the names of private fields begin, in lower case."""
_FIELD = re.compile(
    r"\"(?P<name>hosts?|host_?names?|node|node_?name|node_?list|user|user_?names?|login|logname"
    r"|cmd_?line|cmd|command|command_?line|cwd|pwd|argv|env|env_?vars?|environment"
    r"|environment_variables|trace_?name|home|ip|ip_?addr(?:ess)?|master_addr|serial"
    r"|serial_?number|uuid|guid|e?mail|token|password|secret|api_?key)"
    r"\"\s{0,40}:\s{0,40}(?P<value>[\"\[{])",
    re.I | re.A,
)
_NAMES_SOMEBODY = re.compile(r"host|node|user|login|logname|master|token|password|secret|key", re.I)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.S)
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.S)
_WORD = re.compile(r"[\w.-]{3,255}", re.A)
_MARK = re.compile(r'"\x00(\d{1,9})\x00"')
"""Stands for a string with escapes while the rest of the block is cleaned."""
_LABELS = re.compile(r'"labels"\s{0,40}:\s{0,40}"((?:[^"\\]|\\.)*+)"')
_PUBLIC_LABEL = re.compile(r"\b(?:(?:GPU|NPU|XPU|HPU|MTIA)\s?\d{0,4}|CPU)\b")
_MAX_VALUE_CHARS = 16 << 20


class IncompleteValueError(Exception):
    """The block ends within a private field: more of the file is needed."""


class TraceCleaner:
    """Cleans a trace block by block. The result is JSON where the block is."""

    def __init__(self, words: PrivateWords, removed: dict[str, None]) -> None:
        self._words = words
        self._removed = removed
        self._texts = Cleaner(words, removed)

    def cleaned(self, text: str) -> str:
        """Return the block without what is private; IncompleteValueError where it ends within."""
        text = text.replace("\\/", "/")  # the same in JSON, and one spelling to look for
        text, strings = _without_escapes(text, is_whole=True)
        text = self._without_fields(text, strings, is_whole=True)
        text = clean(text, self._words, self._removed)
        return _MARK.sub(lambda m: self._cleaned_string(strings[int(m[1])]), text)

    def learn(self, text: str) -> None:
        """Take the names that the block's private fields give; it may end within one."""
        text, strings = _without_escapes(text.replace("\\/", "/"), is_whole=False)
        self._words.learn_from_paths(text)
        for string in strings:
            self._words.learn(string)
        self._without_fields(text, strings, is_whole=False)

    def _cleaned_string(self, string: str) -> str:
        """Clean an escaped string in its decoded form, and JSON in it as JSON."""
        try:
            plain = json.loads(string.encode("latin-1").decode("utf-8", "replace"), strict=False)
        except ValueError:
            return string
        if plain[:1] in "[{" and '"' in plain:
            with contextlib.suppress(ValueError, RecursionError):
                plain = json.dumps(_without_keys(json.loads(plain), self._words))
        return json.dumps(self._texts.text(plain))

    def _without_fields(self, text: str, strings: Sequence[str], *, is_whole: bool) -> str:
        parts, last = [], 0
        for match in _fields(text):
            if match.start() < last:
                continue
            start = match.start("value")
            end = _value_end(text, start, match["value"])
            if end is None:
                if is_whole:
                    raise IncompleteValueError
                break
            parts += [text[last:start], self._emptied(match, text[start:end], strings)]
            last = end
            self._removed["host, user and command line fields"] = None
        new = "".join([*parts, text[last:]])
        return _LABELS.sub(self._public_labels, new) if '"labels"' in new else new

    def _emptied(self, match: re.Match[str], value: str, strings: Sequence[str]) -> str:
        name = match["name"]
        if name.lower() == "uuid" and value.startswith('"'):
            return f'"{self._words.device(value[1:-1])}"'
        whole = _MARK.sub(lambda m: strings[int(m[1])], value)
        _learn_value(name, whole, self._words)
        return {"[": "[]", "{": "{}", '"': '""'}[match["value"]]

    def _public_labels(self, match: re.Match[str]) -> str:
        public = ", ".join(_PUBLIC_LABEL.findall(match[1]))
        if public == match[1]:
            return match[0]
        self._removed["host labels"] = None
        return f'"labels": "{public}"'


def _learn_value(name: str, value: str, words: PrivateWords) -> None:
    words.learn(f'"{name}": {value}')
    if _NAMES_SOMEBODY.search(name):
        for word in _WORD.findall(value[: 1 << 16]):
            words.add(word)


def _without_keys(value: Any, words: PrivateWords) -> Any:
    """Return parsed JSON whose private fields are empty."""
    if isinstance(value, list):
        return [_without_keys(item, words) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        if _FIELD.match(f'"{key}": "') and isinstance(item, (str, list, dict)):
            _learn_value(key, json.dumps(item), words)
            item = type(item)()
        kept[key] = _without_keys(item, words)
    return kept


def _without_escapes(text: str, *, is_whole: bool) -> tuple[str, list[str]]:
    """Replace each string that holds an escape by a mark; return the text and those strings."""
    parts: list[str] = []
    strings: list[str] = []
    last = 0
    text = text.replace("\x00", " ")  # no JSON holds one: the marks are ours alone
    at = text.find("\\")
    while at >= 0:
        start = text.rfind('"', last, at)
        whole = _STRING.match(text, start) if start >= 0 else None
        if start >= 0 and whole is None:
            if is_whole:
                raise IncompleteValueError
            break
        if whole is not None:
            parts += [text[last:start], f'"\x00{len(strings)}\x00"']
            strings.append(whole[0])
            last = whole.end()
        at = text.find("\\", max(last, at + 1))
    return "".join([*parts, text[last:]]), strings


def _fields(text: str) -> Iterator[re.Match[str]]:
    for sign in _SIGN.finditer(text.lower()):
        if match := _FIELD.match(text, sign.start()):
            yield match


def _value_end(text: str, start: int, opening: str) -> int | None:
    """Return where the value ends, None where it does not within the text."""
    if opening == '"':
        whole = _STRING.match(text, start)
        return whole.end() if whole else None
    depth = 0
    for token in _STRUCTURE.finditer(text, start, start + _MAX_VALUE_CHARS):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return None
