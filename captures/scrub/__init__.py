"""Write the copy of a capture that may be stored or leave its host: one scrubber a format.

Only what identifies goes: people, machines, folders, secrets (the list is `captures.private`).
Kernel names, times and sizes stay. Formats that cannot be rewritten are copied whole, and the
answer says what may still be in them.
"""

import pickle
import shutil
from pathlib import Path
from typing import Any

from captures.kinds import CaptureKind
from captures.opening import reading
from captures.private import Cleaner, PrivateWords, short_path
from captures.snapshot import load_snapshot_data
from core.errors import CaptureError


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


MAY_REMAIN = "may remain: "
"""Prefix of entries that name what could not be taken out."""
_REPORTS = "environment variables, host, user and command line (the format cannot be rewritten)"


def scrub(
    path: Path, kind: CaptureKind, dest: Path, words: PrivateWords | None = None
) -> tuple[str, ...]:
    """Write the storable copy of `path` to `dest`; return what was removed.

    Entries that start with `MAY_REMAIN` name what the format kept. `words` are names known
    beforehand. A `dest` that ends in `.gz` is packed. CaptureError where the file cannot be read;
    `dest` is then not left behind.
    """
    part = dest.with_name(dest.name + ".part")
    try:
        with reading(path):
            removed = _write(
                path, kind, part, PrivateWords() if words is None else words, dest.suffix == ".gz"
            )
        part.replace(dest)
    finally:
        part.unlink(missing_ok=True)
    return removed


def _write(
    path: Path, kind: CaptureKind, dest: Path, words: PrivateWords, is_packed: bool
) -> tuple[str, ...]:
    """Import one scrubber only: the command line must start fast."""
    if kind is CaptureKind.NSYS_SQLITE:
        from captures.scrub.nsys import scrub_nsys_sqlite

        return scrub_nsys_sqlite(path, dest, words)
    if kind in (CaptureKind.NSYS_REP, CaptureKind.NCU_REP):
        shutil.copyfile(path, dest)
        return (MAY_REMAIN + _REPORTS,)
    if kind is CaptureKind.MEMORY_SNAPSHOT:
        return scrub_snapshot(path, dest, words)
    if kind is CaptureKind.BUNDLE:
        raise CaptureError(path, "a bundle is cleaned file by file", "Import the folder")
    from captures.scrub.text import scrub_text

    return scrub_text(path, kind, dest, words, is_packed=is_packed)
