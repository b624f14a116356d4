"""Stream the events of a Chrome trace of any size: one event in memory at a time, times unrounded.

Python's own JSON scanner reads each event from a sliding buffer; floats stay text. It is tolerant
of what PyTorch has really written: control characters, single backslashes in Windows paths, bytes
that are not UTF-8. Everything else that is not JSON is an error with its byte offset.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from captures.opening import utf16_of
from core.errors import CaptureError

_CHUNK_BYTES = 4 << 20
_MAX_VALUE_CHARS = 64 << 20
"""No event is longer: beyond this the text is damaged, whatever follows."""
_NUMBERS_OF_C = frozenset("+-iInN.")
"""What one of them begins with, or has where JSON's number ends."""
_BLANK = re.compile(r"[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*(?=[^ \t\r\n])")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)')
_OPEN_ESCAPE = re.compile(r"\\u?[0-9a-fA-F]{0,3}$")
_NO_NUMBER = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
    r"|(?<![\w.])([+-]?(?:inf(?:inity)?|nan(?:\(\w*\))?|1\.#\w+)(?=[\s,\]}]))",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
"""A text, or infinity or "no number" as C writes it: `inf`, `-nan`, `-nan(ind)`, `1.#INF`."""
_REMEDY = "Export the trace again, or copy the whole file"


class TraceStream:
    """Read a trace once: iterate `events()`, then look at `header`.

    `on_slide` is called as the buffer slides on, every few megabytes of text: who keeps events can
    let go of them, as their values may take forty times the memory of their text.
    """

    def __init__(
        self, stream: BinaryIO, path: Path, on_slide: Callable[[], None] = lambda: None
    ) -> None:
        self.header: dict[str, Any] = {}
        self.num_repaired = 0
        self.num_zero_bytes = 0
        self._stream = stream
        self._path = path
        self._on_slide = on_slide
        self._encoding = "utf-8"
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        # `scan_once` says where a value ends; typeshed does not list it.
        decoder: Any = json.JSONDecoder(parse_float=str, strict=False)
        self._scan = decoder.scan_once
        self._text = ""
        self._at = 0
        self._num_bytes = 0
        self._is_end = False

    def events(self) -> Iterator[Any]:
        """Yield each element of `traceEvents` (or of a bare array), then check the rest."""
        self._more()
        self._text = self._text.removeprefix("\ufeff")
        opening = self._peek()
        if opening == "[":
            yield from self._array()
        elif opening == "{":
            yield from self._object()
        else:
            raise self._error("it does not start like JSON")
        if self._peek():
            raise self._error("there is text after the end of the JSON")

    def _object(self) -> Iterator[Any]:
        self._at += 1
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            key = self._value()
            if not isinstance(key, str) or self._peek() != ":":
                raise self._error("expected a key and a colon")
            if key == "traceEvents" and key in self.header:
                raise self._error("`traceEvents` occurs twice")
            self._at += 1
            if key == "traceEvents":
                self.header[key] = None
                if self._peek() != "[":
                    raise self._error("`traceEvents` is not a list")
                yield from self._array()
            else:
                self._peek()
                self.header[key] = self._value()
            if not self._has_next("}"):
                return

    def _array(self) -> Iterator[Any]:
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield from self._in_buffer()
            self._more()  # the value that is cut off there is read once, not over and over
            yield self._value()
            if not self._has_next("]"):
                return

    def _in_buffer(self) -> Iterator[Any]:
        """Yield the values in the buffer that are followed by a comma.

        What is no such value is left to `_value`, which reads on or says what is wrong.
        """
        text, scan, comma = self._text, self._scan, _COMMA.match
        try:
            while True:
                value, end = scan(text, self._at)
                after = comma(text, end)
                if after is None:
                    return
                self._at = after.end()
                yield value
        except (StopIteration, ValueError):
            return

    def _has_next(self, closing: str) -> bool:
        char = self._peek()
        if char not in (",", closing) or not char:
            raise self._error("expected a comma or the end")
        self._at += 1
        if char == ",":
            self._peek()
        return char == ","

    def _peek(self) -> str:
        """Skip blanks and return the next character, "" at the end of the file."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except StopIteration as exc:
                place, fault = int(exc.value), "expected a value"
            except json.JSONDecodeError as exc:
                place, fault = exc.pos, exc.msg
            except ValueError as exc:  # an integer of thousands of digits
                raise self._error("a number is too long") from exc
            else:
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value
                continue
            if "escape" in fault and self._repair():
                continue
            if self._text[place : place + 1] in _NUMBERS_OF_C and self._name_no_numbers():
                continue
            ahead = place - self._at
            if len(self._text) - self._at > _MAX_VALUE_CHARS or not self._more():
                raise self._error(fault, self._at + ahead)

    def _repair(self) -> bool:
        """Double the backslashes that start no escape; False where there is none to mend."""
        rest = self._text[self._at :]
        cut = _OPEN_ESCAPE.search(rest, max(0, len(rest) - 5))
        tail = rest[len(rest[: cut.start()].rstrip("\\")) :] if cut else ""
        body = rest[: len(rest) - len(tail)]
        mended = _ESCAPE.sub(lambda m: "\\\\" if m[1] else m[0], body)
        if mended == body:
            return False
        self.num_repaired += len(mended) - len(body)
        self._text, self._at = mended + tail, 0
        return True

    def _name_no_numbers(self) -> bool:
        """Write infinities and the like in the buffer as JSON readers know them, of equal length.

        They are in arguments that are not read; False where there is none.
        """
        rest = self._text[self._at :]
        plain = _NO_NUMBER.sub(lambda m: "NaN".ljust(len(m[1])) if m[1] else m[0], rest)
        if plain == rest:
            return False
        self._text, self._at = plain, 0
        return True

    def _more(self) -> bool:
        """Slide the buffer on; False where the file has no more."""
        if self._is_end:
            return False
        self._on_slide()
        # A long value grows its buffer by doubling, so that it is scanned few times.
        chunk = self._stream.read(max(_CHUNK_BYTES, len(self._text) - self._at))
        self._is_end = not chunk
        if not self._num_bytes and (utf16 := utf16_of(chunk)):
            self._encoding = utf16 if utf16 != "utf-16" else "utf-16-le"
            self._decode = codecs.getincrementaldecoder(utf16)("replace").decode
        self._num_bytes += len(chunk)
        if self._encoding == "utf-8":
            self.num_zero_bytes += chunk.count(0)
        self._text = self._text[self._at :] + self._decode(chunk, self._is_end)
        self._at = 0
        return not self._is_end

    def _error(self, fault: str, place: int | None = None) -> CaptureError:
        at = self._at if place is None else place
        if self._is_end and not self._text[self._at :].strip():
            fault = "the JSON is cut off"
        elif self._is_end and place is not None and "nterminated" in fault:
            fault = "the JSON is cut off within a text"
        errors = "surrogateescape" if self._encoding == "utf-8" else "replace"
        rest = len(self._text[at:].encode(self._encoding, errors))
        return CaptureError(self._path, f"{fault} at byte {self._num_bytes - rest}", _REMEDY)
