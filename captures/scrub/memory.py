"""Take folders and private names out of a memory snapshot."""

import pickle
from pathlib import Path
from typing import Any

from captures.opening import reading
from captures.private import Cleaner, PrivateWords, short_path
from captures.snapshot import load_snapshot_data


def scrub_snapshot(path: Path, dest: Path, words: PrivateWords | None = None) -> tuple[str, ...]:
    """Write the snapshot with short file names; return what was removed.

    Frames keep the path from site-packages on, or the file's own name. Lists and frames that the
    file shares stay shared, so the copy is not larger.
    """
    with reading(path):
        data = load_snapshot_data(path)
    cleaner = Cleaner(words)
    removed = _clean(data, cleaner)
    with dest.open("wb") as out:
        pickle.dump(data, out, protocol=4)
    return tuple(dict.fromkeys((*removed, *cleaner.removed)))


def _clean(data: dict[str, Any], cleaner: Cleaner) -> tuple[str, ...]:
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
            elif isinstance(value, str):
                short = short_path(value) if key == "filename" else value
                if short != value:
                    removed["folders in stack frames"] = None
                new = cleaner.text(short)
                if new != value:
                    item[key] = new
    return tuple(removed)
