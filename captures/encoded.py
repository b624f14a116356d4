"""Find what is private in another spelling: percent signs, escapes of JSON and HTML, base64.

A text between blanks and quotes is decoded, and goes where its plain form would not stay as it is.
"""

import base64
import re
from collections.abc import Callable, Sequence
from urllib.parse import unquote

_A = re.ASCII
_CODED = {
    sign: re.compile(sign.replace("\\", "\\\\") + rest, _A)
    for sign, rest in (
        ("%", r"(?:25){0,8}[2-7][0-9A-Fa-f]"),
        ("\\", r"{1,15}(?:/|u00[2-7][0-9A-Fa-f]|x[2-7][0-9A-Fa-f])"),
        ("&#", r"(?:x[2-7][0-9A-Fa-f]|\d{2,3});"),
    )
}
"""By how they begin, which is found at C speed."""
_ESCAPE = re.compile(
    r"\\{1,15}(?:(?P<slash>/)|u00(?P<u>[2-7][0-9A-Fa-f])|x(?P<x>[2-7][0-9A-Fa-f]))"
    r"|&#(?:x(?P<hex>[2-7][0-9A-Fa-f])|(?P<number>\d{2,3}));",
    _A,
)
_END = re.compile(r"[^\s\"'<>,|]{0,4096}", _A)
_START = re.compile(r"[^\s\"'<>,|]", _A)
_MAX_BACK = 512
_ROUNDS = 3
_UNSAFE = re.compile(r"[\"'\\<>,|\s]")
_HOMES = (b"/home/", b"/Users/")
_BASE64_BYTE = re.compile(r"[A-Za-z0-9+/_-]", _A)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{0,4096}={0,2}", _A)


def _in_base64(text: bytes) -> set[str]:
    """Return how these bytes look within base64, where they begin at any of its three places."""
    looks = set()
    for before in range(3):
        coded = base64.b64encode(bytes(before) + text).decode()
        looks.add(coded[-(-before * 8 // 6) : (before + len(text)) * 8 // 6])
    return looks


_HOMES_IN_BASE64 = tuple(sorted(look for home in _HOMES for look in _in_base64(home)))


def without_encoded(text: str, clean: Callable[[str], str], instead: str) -> str:
    """Return the text without what `clean` would change once it is decoded."""
    coded = [m for sign, form in _CODED.items() if sign in text for m in form.finditer(text)]
    if coded:
        coded.sort(key=lambda match: match.start())
        text = _without_escaped(text, coded, clean, instead)
    return without_base64(text, instead)


def _without_escaped(
    text: str, coded: Sequence[re.Match[str]], clean: Callable[[str], str], instead: str
) -> str:
    parts, last = [], 0
    for match in coded:
        if match.start() < last:
            continue
        start = match.start()
        least = max(last, start - _MAX_BACK)
        while start > least and _START.match(text, start - 1):
            start -= 1
        whole = _END.match(text, match.start())
        end = max(match.end(), whole.end() if whole else 0)
        plain = _decoded(text[start:end])
        cleaned = clean(plain)
        if cleaned != plain:
            parts += [text[last:start], instead if _UNSAFE.search(cleaned) else cleaned]
        else:
            parts.append(text[last:end])
        last = end
    return "".join([*parts, text[last:]]) if parts else text


def _decoded(token: str) -> str:
    for _ in range(_ROUNDS):
        plain = _ESCAPE.sub(_character, unquote(token, errors="replace"))
        if plain == token:
            break
        token = plain
    return token


def _character(match: re.Match[str]) -> str:
    if match["slash"]:
        return "/"
    if match["number"]:
        code = int(match["number"])
        return chr(code) if 32 <= code < 127 else match[0]
    return chr(int(match["u"] or match["x"] or match["hex"], 16))


def without_base64(text: str, instead: str) -> str:
    """Return the text without base64 that holds the path of a home folder."""
    if len(text) < 16 or not any(look in text for look in _HOMES_IN_BASE64):
        return text
    parts, last = [], 0
    for at in sorted(at for look in _HOMES_IN_BASE64 for at in _places(text, look)):
        if at < last:
            continue
        start, least = at, max(last, at - 4096)
        while start > least and _BASE64_BYTE.match(text, start - 1):
            start -= 1
        whole = _BASE64.match(text, at)
        parts += [text[last:start], instead]
        last = max(at, whole.end() if whole else 0)
    return "".join([*parts, text[last:]])


def _places(text: str, look: str) -> list[int]:
    places, at = [], text.find(look)
    while at >= 0:
        places.append(at)
        at = text.find(look, at + 1)
    return places
