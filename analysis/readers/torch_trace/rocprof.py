"""Read the Chrome trace of AMD's rocprof as if PyTorch's profiler had written it.

rocprof gives its spans no category: the process they stand in says what they are (`GPU0`, `COPY`,
`CPU HIP API`, `CPU HSA API`, `Markers and Ranges`), their arguments hold the exact times, and flow
arrows tie a call to what it started.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

_GPU = re.compile(r"GPU ?(\d+)")
_CATEGORIES = (
    (_GPU, "kernel"),
    (re.compile(r"COPY"), "gpu_memcpy"),
    (re.compile(r"(CPU )?(HIP|HSA) API"), "cuda_runtime"),
    (re.compile(r"Markers"), "user_annotation"),
)
_ON_GPU = ("kernel", "gpu_memcpy")
_BINARY_NAME = re.compile(r"(\.kd| \[clone \.kd\])$")
"""What the names of kernels end with as the GPU's program lists them."""
_OF_SPAN = ("ph", "name", "pid", "tid", "ts")
_OF_ARGS = ("BeginNs", "DurationNs", "pid", "tid", "stream-id", "queue-id", "gpu-id", "dev-id")
_OF_ARROW = ("ph", "id", "pid", "tid", "ts")
Event = dict[str, Any]
_Key = tuple[int, int, int]
"""Process, thread and start in us, as spans and arrows both state them."""


def from_rocprof(events: Iterator[Any]) -> Iterator[Any]:
    """Give the events, those of rocprof as PyTorch tells them; the first span says whose it is.

    Anything else is passed on as it comes, and costs nothing.
    """
    names: dict[int, str] = {}
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X":
            rest = chain((event,), events)
            yield from _retold(rest, names) if _is_span(event) else rest
            return
        _note_process(names, event)
        yield event


def _retold(events: Iterable[Any], names: dict[int, str]) -> Iterator[Any]:
    spans: list[Event] = []
    arrows: list[Event] = []
    for event in events:
        if isinstance(event, dict) and _is_span(event):
            spans.append({**_plain(event, _OF_SPAN), "args": _plain(event["args"], _OF_ARGS)})
        elif isinstance(event, dict) and event.get("cat") == "DataFlow":
            arrows.append(_plain(event, _OF_ARROW))
        else:
            _note_process(names, event)
            yield event
    yield from _told(spans, names, arrows)


def _plain(values: Event, keys: tuple[str, ...]) -> Event:
    """Return the values that are read, where they are texts or numbers: all wait for the end."""
    return {key: values[key] for key in keys if type(values.get(key)) in (int, str)}


def _is_span(event: Event) -> bool:
    args = event.get("args")
    return "cat" not in event and isinstance(args, dict) and "BeginNs" in args


def _note_process(names: dict[int, str], event: Any) -> None:
    if not isinstance(event, dict) or event.get("name") != "process_name":
        return
    number, args = _whole(event.get("pid")), event.get("args")
    if event.get("ph") == "M" and number is not None and isinstance(args, dict):
        name = args.get("name", "")
        names[number] = name if isinstance(name, str) else ""


def _told(spans: list[Event], names: dict[int, str], arrows: list[Event]) -> Iterator[Event]:
    calls = _Calls(spans, arrows)
    for i, span in enumerate(spans):
        args, process = span["args"], names.get(_whole(span.get("pid")) or 0, "")
        category = next((name for p, name in _CATEGORIES if p.match(process)), None)
        begin, length = _whole(args.get("BeginNs")), _whole(args.get("DurationNs"))
        if category is None or begin is None or length is None:
            yield span
            continue
        number = calls.started_by(span) if category in _ON_GPU else i + 1
        more: Event = {"correlation": number} if number else {}
        pid, tid = _whole(args.get("pid")) or 0, _whole(args.get("tid")) or 0
        if category in _ON_GPU:
            pid, tid = _device(process, args), _first(args, "stream-id", "queue-id")
            more |= {"device": pid, "stream": tid}
        yield {
            "ph": "X",
            "cat": category,
            "name": _BINARY_NAME.sub("", str(span.get("name", ""))),
            "pid": pid,
            "tid": tid,
            "ts": _us(begin),
            "dur": _us(length),
            "args": more,
        }


class _Calls:
    """Which call each arrow comes from: the last on its thread that began before it."""

    def __init__(self, spans: list[Event], arrows: list[Event]) -> None:
        begins: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for i, span in enumerate(spans):
            if (key := _key(span)) is not None:
                begins[key[:2]].append((key[2], i + 1))
        for starts in begins.values():
            starts.sort()
        call_of: dict[int, int] = {}
        for arrow in arrows:
            key, number = _key(arrow), _whole(arrow.get("id"))
            if arrow.get("ph") == "s" and key is not None and number is not None:
                starts = begins[key[:2]]
                before = bisect_right(starts, (key[2], len(spans) + 1))
                if before:
                    call_of[number] = starts[before - 1][1]
        self._at: dict[_Key, list[int]] = defaultdict(list)
        for arrow in reversed(arrows):
            key, number = _key(arrow), _whole(arrow.get("id"))
            if arrow.get("ph") != "s" and key is not None and number in call_of:
                self._at[key].append(call_of[number])

    def started_by(self, span: Event) -> int:
        """Return the number of the call that an arrow ties to the span; 0 if none does."""
        key = _key(span)
        here = self._at.get(key, []) if key is not None else []
        return here.pop() if here else 0


def _device(process: str, args: Event) -> int:
    named = _GPU.match(process)
    return int(named[1]) if named else _first(args, "gpu-id", "dev-id")


def _first(args: Event, *keys: str) -> int:
    """Return the first of these numbers that the arguments hold; 0 without any."""
    return next((n for key in keys if (n := _whole(args.get(key))) is not None), 0)


def _key(event: Event) -> _Key | None:
    numbers = [_whole(event.get(name)) for name in ("pid", "tid", "ts")]
    known = [n for n in numbers if n is not None]
    return (known[0], known[1], known[2]) if len(known) == len(numbers) else None


def _whole(value: Any) -> int | None:
    text = str(value) if type(value) is int or type(value) is str else ""
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
