"""Which files make a run, and the hashes by which the same files are known again."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any

from captures.manifest import MANIFEST, load_manifest, not_waiting
from core.errors import CaptureError, UserError
from core.spec import canonical_json

_MAX_NAME_BYTES = 180
_COPY_AGAIN = "Copy the bundle again, or create it again"
_NOT_PLAIN = ("is not a regular file", "Import a file or a bundle folder")


def check_paths(paths: Sequence[Path]) -> None:
    """Raise for what is not there, and for pipes and devices, which might never end."""
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        if not (path.is_file() or path.is_dir()):  # opening a pipe would wait for its writer
            raise CaptureError(path, *_NOT_PLAIN)


def bundle_folders(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the bundles when the paths are several, or folders of several; () when they are not.

    A sweep of `warpboard run` leaves a folder of bundles; looked for two levels deep.
    """
    if not all(p.is_dir() for p in paths):
        return ()
    folders: dict[Path, None] = {}
    for folder in paths:
        if (folder / MANIFEST).is_file():
            folders[folder] = None
            continue
        inside = [p.parent for way in ("*", "*/*") for p in folder.glob(f"{way}/{MANIFEST}")]
        folders |= dict.fromkeys(sorted(inside))
    is_one_bundle = len(paths) == 1 and list(folders) == list(paths)
    return () if is_one_bundle else tuple(folders)


def content_hash(paths: Sequence[Path]) -> str | None:
    """Return the `content_hash` of these as a run, from a bundle's manifest or the files' bytes.

    None where something is missing or cannot be read: their reader says what. Raises CaptureError
    for a bundle whose files differ from its manifest.
    """
    folders = [p.parent if p.name == MANIFEST else p for p in paths if not _is_loose(p)]
    try:
        if not folders:
            return hash_of_captures({sha256_in_state(p, state(p, with_links=True)) for p in paths})
        if len(paths) > 1 or not (folders[0] / MANIFEST).is_file():
            return None
        manifest = load_manifest(folders[0])
        for entry in manifest["passes"]:
            for item in entry["captures"]:
                checked_file(folders[0], item)
        return hash_of(manifest)
    except OSError:
        return None


def _is_loose(path: Path) -> bool:
    return path.is_file() and path.name != MANIFEST


def hash_of_captures(hashes: set[str]) -> str:
    """Return the content hash of a run of loose files."""
    return hash_of(sorted(hashes))


def checked_file(folder: Path, item: Mapping[str, Any]) -> Path:
    """Return a file of a manifest after its hash was checked; CaptureError."""
    path = folder / item["file"]
    if not path.is_file() or path.is_symlink():
        raise CaptureError(folder / MANIFEST, f"the file {item['file']} is missing", _COPY_AGAIN)
    if path.stat().st_size != item["bytes"]:
        raise differs(path)
    try:
        found = file_sha256(path, follows_links=False)
    except OSError as exc:
        if exc.errno != errno.ELOOP:  # it became a link meanwhile
            raise
        found = ""
    if found != item["sha256"]:
        raise differs(path)
    return path


def differs(path: Path) -> CaptureError:
    """Return the error of a bundle's file that is not what the manifest says."""
    return CaptureError(path, "its contents differ from the hash in the manifest", _COPY_AGAIN)


def hash_of(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_sha256(path: Path, *, follows_links: bool = True) -> str:
    """Return a file's SHA-256 in hex; CaptureError for what is not a plausible regular file."""
    with open_plain(path, follows_links=follows_links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_plain(path: Path, *, follows_links: bool = False) -> BufferedReader:
    """Open a file for reading that others write to, or might have put something else in place of.

    CaptureError for a pipe or a device, which might never end; OSError for a link.
    """
    stays = 0 if follows_links else os.O_NOFOLLOW
    descriptor = not_waiting(str(path), os.O_RDONLY | os.O_CLOEXEC | stays)
    try:
        _check_plain(path, descriptor)
    except CaptureError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def copy_plain(path: Path, dest: Path) -> None:
    """Copy a file's bytes as they are at one moment's place; CaptureError for what is not plain."""
    with open_plain(path, follows_links=True) as file, dest.open("wb") as copy:
        shutil.copyfileobj(file, copy, 1 << 20)


def others_may_swap(path: Path) -> bool:
    """Say whether another user of this host may put a folder in the place of one above a file.

    For a moment, while the file, or one in this folder, is read by its name several times: no time
    of the file itself tells it.
    """
    if path.is_dir():
        with os.scandir(path) as entries:
            return any(e.is_symlink() for e in entries) or others_may_swap(path / "any")
    places = {*path.absolute().parents, *Path(os.path.realpath(path)).parents}
    return any(_others_may_rename(folder) for folder in places)


def _others_may_rename(folder: Path) -> bool:
    """Say whether the folder is another's, or one whose entries others may rename."""
    try:
        seen = folder.lstat()
    except OSError:
        return True
    is_open = seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not seen.st_mode & stat.S_ISVTX
    return seen.st_uid not in (0, os.geteuid()) or (
        bool(is_open) and not stat.S_ISLNK(seen.st_mode)
    )


def _check_plain(path: Path, descriptor: int) -> None:
    """Refuse pipes and devices, and files of holes: reading terabytes of zeros takes hours."""
    status, disk = os.fstat(descriptor), os.fstatvfs(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise CaptureError(path, *_NOT_PLAIN)
    size_bytes = disk.f_blocks * disk.f_frsize
    if size_bytes and status.st_size > size_bytes:
        where = f"its size of {status.st_size / 1e12:.1f} TB is more than its whole disk has"
        raise CaptureError(path, where, "It is a sparse file, not a capture: copy it again")


def content_sha256(path: Path) -> str:
    """Return the file's SHA-256, of a database together with its write-ahead log if it has one."""
    hashes = [file_sha256(p) for p in _with_logs(path) if p == path or _has_content(p)]
    return hashes[0] if len(hashes) == 1 else hash_of(hashes)


State = tuple[tuple[int, ...], ...]
"""Of a file and the logs beside it; see `state`."""


@lru_cache(maxsize=4096)
def sha256_in_state(path: Path, seen: State) -> str:
    """Return `content_sha256` of a file that is in this state, found `with_links`; only once."""
    return content_sha256(path)


def known_hashes(paths: Sequence[Path]) -> dict[str, tuple[State, str]]:
    """Return the state and hash of each loose file: a reader need not work out the hash again."""
    hashes = {}
    for path in filter(_is_loose, paths):
        with suppress(OSError, CaptureError):  # its reader says so
            seen = state(path, with_links=True)
            hashes[str(path.absolute())] = (seen, sha256_in_state(path, seen))
    return hashes


def state(path: Path, *, with_links: bool = False) -> State:
    """Return what changes when the file, or a database's log beside it, is written or replaced.

    `with_links`: also when it was renamed, so that another could take its place for a moment, or
    linked, as readers do with their own copies.
    """
    stamps = []
    for place in _with_logs(path):
        with suppress(OSError):
            seen = place.stat()
            times = (seen.st_mtime_ns, seen.st_ctime_ns if with_links else 0)
            stamps.append((seen.st_size, *times, seen.st_dev, seen.st_ino))
    return tuple(stamps)


def _with_logs(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-journal"))]


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def unique_name(name: str, taken: Container[str]) -> str:
    """Return a plain file name like the given one that is not `taken`; its end stays.

    A name may come from anywhere: without NUL and separators, and short in bytes.
    """
    plain = "".join(c if c.isprintable() and c not in '/\\"' else "_" for c in name)
    kept = plain.encode("utf-8", "replace")[-_MAX_NAME_BYTES:].decode("utf-8", "ignore")
    kept = kept.lstrip(".") or "capture"
    candidate, count = kept, 1
    while candidate in taken:
        count += 1
        stem, dot, rest = kept.partition(".")
        candidate = f"{stem}-{count}{dot}{rest}"
    return candidate
