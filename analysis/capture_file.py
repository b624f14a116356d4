"""Read one capture file for a run: hash it, take private fields out, read what is left."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from analysis.rundata import RunCapture
from analysis.tables import CaptureKind, CaptureTables
from captures.contents import State, content_sha256, copy_plain, file_sha256, state
from captures.database import sidecars
from captures.opening import reading
from captures.private import PrivateWords
from core.errors import CaptureError
from core.states import Pass

PASS_OF_KIND = {
    CaptureKind.NSYS_SQLITE: Pass.NSYS,
    CaptureKind.NSYS_REP: Pass.NSYS,
    CaptureKind.NSYS_CSV: Pass.NSYS,
    CaptureKind.NCU_REP: Pass.NCU,
    CaptureKind.NCU_CSV: Pass.NCU,
    CaptureKind.NCU_LOG: Pass.NCU,
    CaptureKind.NCU_SOURCE: Pass.NCU,
    CaptureKind.TORCH_TRACE: Pass.TRACE,
    CaptureKind.MEMORY_SNAPSHOT: Pass.MEMORY,
    CaptureKind.LATENCY_CSV: Pass.CLEAN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Where copies go and whether private fields stay in them."""

    folder: Path
    keep_private: bool = False
    salt: bytes = b""
    "The installation's, for hashes of GPUs' UUIDs; they are dropped without one."
    copies_first: bool = False
    "Whether a file is read from a copy of its own: others may swap the folders above it."
    hashes: Mapping[str, tuple[State, str]] = field(default_factory=dict)
    "State and hash of files by path, where they are known (`captures.contents.known_hashes`)."

    def sha256(self, path: Path, seen: State) -> str:
        """Return a file's `content_sha256`, which holds while it is in this state."""
        known = self.hashes.get(str(path))
        return known[1] if known is not None and known[0] == seen else content_sha256(path)


def read_capture(
    path: Path, staging: Staging, name: str, *, kind: CaptureKind | None, pass_name: str | None
) -> RunCapture:
    with _unmoved(path, staging) as source:
        return _read_capture(source, staging, name, kind=kind, pass_name=pass_name)


@contextmanager
def _unmoved(path: Path, staging: Staging) -> Iterator[Path]:
    """Give a path that names one file until the end: that of a copy where others may swap it."""
    if not staging.copies_first:
        yield path
        return
    before = state(path, with_links=True)
    # No capture's name begins so.
    folder = Path(tempfile.mkdtemp(prefix=".unmoved-", dir=staging.folder))
    copy = folder / path.name
    try:
        with reading(path):
            copy_plain(path, copy)
            for side in sidecars(path):
                copy_plain(side, folder / side.name)
        if state(path, with_links=True) != before:
            raise _changed(path)
        yield copy
    except CaptureError as exc:
        if exc.path != str(copy):
            raise
        raise CaptureError(path, exc.where, exc.remedy) from exc
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_capture(
    path: Path, staging: Staging, name: str, *, kind: CaptureKind | None, pass_name: str | None
) -> RunCapture:
    from analysis import readers

    stored = staging.folder / name
    removed: tuple[str, ...] = ()
    with ThreadPoolExecutor(max_workers=1) as beside:
        before = state(path, with_links=True)
        hashing = beside.submit(staging.sha256, path, before)
        if kind is None:
            kind = CaptureKind(readers.detect(path))
        else:
            readers.check_kind(path, kind)
        if staging.keep_private:
            _copy_whole(path, kind, stored)
        else:
            from captures.scrub import scrub

            removed = scrub(path, kind, stored, PrivateWords(salt=staging.salt))
        with reading(path):  # it may be gone
            source_sha256 = hashing.result()
        is_whole = staging.keep_private and kind is not CaptureKind.NSYS_SQLITE
        if state(path, with_links=True) != before or (
            is_whole and content_sha256(stored) != source_sha256
        ):
            raise _changed(path)
        hashing = beside.submit(file_sha256, stored)
        is_own_copy = not staging.keep_private
        tables = readers.read(
            stored,
            kind,
            is_own_copy=is_own_copy,
            scratch=staging.folder,
            words=PrivateWords(salt=staging.salt),
        )
        stored_sha256 = hashing.result()
    return RunCapture(
        pass_name=pass_name or str(PASS_OF_KIND[kind]),
        process=0,
        tables=tables,
        file_name=name,
        path=stored,
        num_bytes=stored.stat().st_size,
        sha256=stored_sha256,
        source_sha256=source_sha256,
        private_removed=removed,
    )


def _changed(path: Path) -> CaptureError:
    return CaptureError(path, "it changed while it was read", "Import it once it is complete")


def keep_capture(
    path: Path, staging: Staging, name: str, kind: CaptureKind, pass_name: str
) -> RunCapture:
    """Store a file as it is, to be downloaded; nothing is read from it."""
    with _unmoved(path, staging) as source:
        return _keep_capture(source, staging, name, kind, pass_name)


def _keep_capture(
    path: Path, staging: Staging, name: str, kind: CaptureKind, pass_name: str
) -> RunCapture:
    from captures.scrub import scrub

    stored = staging.folder / name
    words = PrivateWords(salt=staging.salt)
    before = state(path, with_links=True)
    removed = () if staging.keep_private else scrub(path, kind, stored, words)
    if staging.keep_private:
        _copy_whole(path, kind, stored)
    source_sha256 = content_sha256(path)
    if state(path, with_links=True) != before or (
        staging.keep_private and content_sha256(stored) != source_sha256
    ):
        raise _changed(path)
    tool = "nsys" if kind is CaptureKind.NSYS_REP else "ncu"
    return RunCapture(
        pass_name=pass_name,
        process=0,
        tables=CaptureTables(kind=kind, path=stored, tool=tool),
        file_name=name,
        path=stored,
        num_bytes=stored.stat().st_size,
        sha256=file_sha256(stored),
        source_sha256=source_sha256,
        private_removed=removed,
    )


def _copy_whole(path: Path, kind: CaptureKind, stored: Path) -> None:
    """Copy a capture; a database with the contents of its write-ahead log."""
    if kind is CaptureKind.NSYS_SQLITE:
        from captures.scrub.nsys import copy_nsys_sqlite

        copy_nsys_sqlite(path, stored)
    else:
        shutil.copyfile(path, stored)
