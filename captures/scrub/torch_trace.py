"""Drop the fields of a PyTorch trace whose value is private, in a block of its JSON text."""

import re

from captures.private import PrivateWords, hashed

_SIGNS: tuple[str, ...] = (
    "host",
    "node",
    "user",
    "login",
    "logname",
    "cmd",
    "command",
    "cwd",
    "pwd",
    "argv",
    "env",
)
_SIGNS += ("trace", "home", "ip", "master", "serial", "uuid", "guid", "mail", "email", "token")
_SIGNS += ("password", "secret", "api")
_FIELD = re.compile(
    r"\"(?P<name>hosts?|host_?names?|node|node_?name|node_?list|user|user_?names?|login|logname"
    r"|cmd_?line|cmd|command|command_?line|cwd|pwd|argv|env|env_?vars?|environment"
    r"|environment_variables|trace_?name|home|ip|ip_?addr(?:ess)?|master_addr|serial"
    r"|serial_?number|uuid|guid|e?mail|token|password|secret|api_?key)"
    r"(?P<escape>\\{0,7})\"\s{0,40}:\s{0,40}(?P<value>\\{0,7}\"|[\[{])",
    re.I | re.A,
)
_NAMES_SOMEBODY = re.compile(r"host|node|user|login|logname|master|token|password|secret|key", re.I)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.S)
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.S)
_WORD = re.compile(r"[\w.-]{3,255}", re.A)
_LABELS = re.compile(r'"labels"\s{0,40}:\s{0,40}"((?:[^"\\]|\\.)*+)"')
_PUBLIC_LABEL = re.compile(r"\b(?:(?:GPU|NPU|XPU|HPU|MTIA)\s?\d{0,4}|CPU)\b")
_MAX_VALUE_CHARS = 16 << 20


class IncompleteValueError(Exception):
    """The block ends within a private field: more of the file is needed."""


def without_private_fields(
    text: str, words: PrivateWords, removed: dict[str, None], *, is_whole: bool = True
) -> str:
    """Return the block with private fields emptied; `words` learns the names in them.

    Unless `is_whole`, a field that is cut off ends the block without an error.
    """
    text = text.replace("\\/", "/")  # the same in JSON, and one spelling to look for
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
        parts += [text[last:start], _emptied(match, text[start:end], words)]
        last = end
        removed["host, user and command line fields"] = None
    new = "".join([*parts, text[last:]])
    return _LABELS.sub(lambda m: _public_labels(m, removed), new) if '"labels"' in new else new


def _fields(text: str) -> list[re.Match[str]]:
    lower = text.lower()
    found: dict[int, re.Match[str]] = {}
    for sign in _SIGNS:
        at = lower.find(f'"{sign}')
        while at >= 0:
            if match := _FIELD.match(text, at):
                found[at] = match
            at = lower.find(f'"{sign}', at + 1)
    return [found[at] for at in sorted(found)]


def _value_end(text: str, start: int, opening: str) -> int | None:
    """Return where the value ends, None where it does not within the text."""
    if opening == '"':
        whole = _STRING.match(text, start)
        return whole.end() if whole else None
    if opening.startswith("\\"):  # JSON within a string: up to the next quote spelled alike
        close = text.find(opening, start + len(opening))
        return close + len(opening) if close >= 0 else None
    depth = 0
    for token in _STRUCTURE.finditer(text, start, start + _MAX_VALUE_CHARS):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return None


def _emptied(match: re.Match[str], value: str, words: PrivateWords) -> str:
    opening, name = match["value"], match["name"]
    if name.lower() == "uuid" and opening == '"':
        return f'"{hashed(value[1:-1])}"'
    words.learn(f'"{name}": {value}')
    words.learn(value)
    if _NAMES_SOMEBODY.search(name):
        for word in _WORD.findall(value[: 1 << 16]):
            words.add(word)
    return {"[": "[]", "{": "{}"}.get(opening, opening * 2)


def _public_labels(match: re.Match[str], removed: dict[str, None]) -> str:
    public = ", ".join(_PUBLIC_LABEL.findall(match[1]))
    if public != match[1]:
        removed["host labels"] = None
    return f'"labels": "{public}"' if public != match[1] else match[0]
