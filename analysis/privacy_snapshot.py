"""Take home folders and private paths out of a memory snapshot."""

import pickle
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from analysis.readers.memory_sites import short_path
from analysis.readers.memory_snapshot import load_snapshot_data
from captures.opening import reading

_SPACED_HOME = re.compile(r"(?i)([\\/]Users[\\/])[^/\\\"':;,<>|\r\n]{1,64}(?=[\\/])")
_HOME = re.compile(r"(?i)([\\/](?:home|Users)[\\/])[^/\\\"'\s:,;<>|]+")


def scrub_snapshot(path: Path, dest: Path) -> tuple[str, ...]:
    """Write the snapshot with short file names; return what was removed.

    Frames keep the path from site-packages on, or the file's own name. Lists and frames that the
    file shares stay shared, so the copy is not larger.
    """
    with reading(path):
        data = load_snapshot_data(path)
    removed = _clean(data)
    with dest.open("wb") as out:
        pickle.dump(data, out, protocol=4)
    return removed


def _clean(data: dict[str, Any]) -> tuple[str, ...]:
    """Shorten paths in place, each shared object once."""
    removed: dict[str, None] = {}
    seen: set[int] = set()
    waiting: list[Any] = [data]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, list):
            if not seen.issuperset(map(id, item)):  # most stacks hold frames of others alone
                waiting += [v for v in item if id(v) not in seen and isinstance(v, (dict, list))]
            continue
        for key, value in item.items():
            if isinstance(value, (dict, list)):
                waiting.append(value)
            elif isinstance(value, str) and ("/" in value or "\\" in value):
                is_file = key == "filename"
                new = short_path(value) if is_file else _homeless(value)
                if new != value:
                    item[key] = new
                    removed["folders in stack frames" if is_file else "home folders"] = None
    return tuple(removed)


@lru_cache(maxsize=1 << 12)
def _homeless(text: str) -> str:
    return _HOME.sub(r"\1user", _SPACED_HOME.sub(r"\1user", text))
