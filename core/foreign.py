"""Values that came from another host or from a file: bounded, finite, and of the right type."""

import json
import math
from collections.abc import Mapping
from typing import Any

from core.errors import UserError
from core.numbers import decimal

MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 4_000
MAX_ITEMS = 2_000
MAX_DEPTH = 8
MAX_GPU_CHARS = 200_000
MAX_CONTAINERS, MAX_VALUES, MAX_KEYS = 100_000, 1_500_000, 300_000
"""Of a whole JSON document, as its brackets, commas and colons count them."""
_KEY_ENDS = (b'":', b" :", b"\t:", b"\n:", b"\r:")
_MAX_INT = 2**63
_SHOWN_CHARS = 60


def bounded_json(data: bytes) -> Any:
    """Return the value of a JSON document in UTF-8; ValueError for none, or one of too many parts.

    Millions of empty lists take Python's parser ten seconds, in which no other thread runs: they
    are counted before. A document of a million numbers, the largest that is sent, passes.
    """
    counts = {
        "lists and objects": (data.count(b"[") + data.count(b"{"), MAX_CONTAINERS),
        "values": (data.count(b","), MAX_VALUES),
        "keys": (sum(map(data.count, _KEY_ENDS)), MAX_KEYS),
    }
    for what, (count, limit) in counts.items():
        if count > limit:
            raise ValueError(f"it has more than {limit} {what}")
    try:
        return json.loads(data.decode("utf-8-sig"))
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc


def checked_text(value: Any, where: str) -> str:
    """Return a printable text of at most MAX_NAME_CHARS; UserError names the field."""
    if isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_NAME_CHARS:
        return value
    raise _wrong(where, value, f"a printable text of at most {MAX_NAME_CHARS} characters")


def checked_number(value: Any, where: str, high: float) -> float:
    """Return a finite number of 0 to `high`; UserError names the field."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= high:  # false for nan
        return float(value)
    raise _wrong(where, value, f"a number from 0 to {decimal(high, 6)}")


def checked_int(value: Any, where: str) -> int:
    """Return a whole number that a database holds, from 0; UserError names the field."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_INT:
        return value
    raise _wrong(where, value, f"a whole number from 0 to {_MAX_INT - 1}")


def checked_mapping(value: Any, where: str) -> dict[str, Any]:
    """Return a JSON object, {} for none; UserError names the field."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    raise _wrong(where, value, "an object")


def checked_json(value: Any, where: str, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value that is finite and bounded in depth, length and texts; UserError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < _MAX_INT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str) and len(value) <= MAX_TEXT_CHARS and _is_unicode(value):
        return value
    if isinstance(value, list | dict) and depth > 0 and len(value) <= MAX_ITEMS:
        if isinstance(value, list):
            return [checked_json(v, f"{where}[{i}]", depth - 1) for i, v in enumerate(value)]
        return {
            checked_text(k, f"a key of {where}"): checked_json(v, f"{where}.{k[:40]}", depth - 1)
            for k, v in value.items()
        }
    raise _wrong(where, value, "a finite JSON value of moderate size")


def checked_gpu(gpu: Any, where: str = "gpu") -> dict[str, Any]:
    """Return what a worker or a bundle says of a GPU with every field checked; UserError.

    Unread fields are kept unchanged, as long as they are bounded JSON.
    """
    record = dict(checked_json(checked_mapping(gpu, where), where))
    for name in ("model", "name", "uuid", "compute_capability", "driver"):
        if record.get(name) is not None:
            record[name] = checked_text(record[name], f"{where}.{name}")
    if "/" in (record.get("uuid") or ""):  # the keys of GPUs without one have it
        raise _wrong(f"{where}.uuid", record["uuid"], "a UUID")
    for name in ("ordinal", "num_sms", "memory_bytes"):
        if record.get(name) is not None:
            record[name] = checked_int(record[name], f"{where}.{name}")
    if record.get("noise_floor_frac") is not None:
        at = f"{where}.noise_floor_frac"
        record["noise_floor_frac"] = checked_number(record["noise_floor_frac"], at, 10)
    floors = checked_mapping(record.get("noise_floors"), f"{where}.noise_floors")
    for name, value in floors.items():
        if value is not None:
            checked_number(value, f"{where}.noise_floors.{name}", 10)
    peaks = checked_mapping(record.get("peaks"), f"{where}.peaks")
    for name, entry in peaks.items():
        _check_peak(entry if isinstance(entry, Mapping) else {"value": entry}, where, name)
    if record.get("measured_at"):
        checked_text(record["measured_at"], f"{where}.measured_at")
    if len(json.dumps(record)) > MAX_GPU_CHARS:
        raise UserError(f"{where} is longer than {MAX_GPU_CHARS} characters")
    return record


def _check_peak(record: Mapping[str, Any], where: str, name: str) -> None:
    at = f"{where}.peaks.{name}"
    for part, high in (("value", 1e30), ("sm_clock_mhz", 1e6)):
        if record.get(part) is not None:
            checked_number(record[part], at, high)
    for part in ("unit", "measured_at"):
        if record.get(part):
            checked_text(record[part], f"{at}.{part}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can write it, SQLite cannot
        return False
    return True


def _wrong(where: str, value: Any, wanted: str) -> UserError:
    return UserError(f"{where} is {repr(value)[:_SHOWN_CHARS]}, expected {wanted}")
