"""Read an .nsys-rep or .qdrep report through the newest nsys on this host.

The report's first line names the version that made it; only that version or a newer one can export
it. The exit code of nsys is not evidence, the exported file is.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.readers.nsys.export import read_nsys_sqlite
from analysis.readers.nsys.facts import without_paths
from analysis.readers.tool_end import check_end
from analysis.tables import CaptureKind, CaptureTables
from captures.nsys_database import LFS_MAGIC, REPORT_MAGIC
from captures.private import PrivateWords
from captures.scrub.nsys import scrub_nsys_sqlite
from core.errors import CaptureError

Version = tuple[int, ...]
EXPORT_LIMIT_S = 1800
SCAN_BYTES = 64 << 20
_HEADER_VERSION = re.compile(rb"Report (\d{4})@(\d{1,9})@(\d{1,9})(?:@(\d{1,9}))?")
_BODY_VERSION = re.compile(rb"(20\d\d)\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})-\d{1,18}v\d")
_TOOL_VERSION = re.compile(r"version (\d{4})\.(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_TOO_NEW = re.compile(r"version \((20\d\d\.\d{1,9}\.\d{1,9})[^)]{0,200}\)[^.]*newer than")
TOOL_GLOBS = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysTool:
    """An nsys on this host."""

    path: Path
    version: Version


def read_nsys_rep(path: Path, *, words: PrivateWords | None = None) -> CaptureTables:
    """Export the report to SQLite in a private folder and read that; spawns nsys.

    With `words` the export is cleaned as an imported one is, before anything is read from it.

    CaptureError names the version needed where no nsys here is new enough.
    """
    made_by = report_version(path)
    tools = sorted(find_nsys(), key=lambda t: t.version, reverse=True)
    if not tools:
        raise CaptureError(path, f"{_made(made_by)}, and this host has no nsys", _advice(made_by))
    newest = tools[0]
    if made_by and newest.version[: len(made_by[:3])] < made_by[:3]:
        have = _text(newest.version)
        raise CaptureError(
            path, f"{_made(made_by)}, newer than the nsys {have} of this host", _advice(made_by)
        )
    with tempfile.TemporaryDirectory(prefix="warpboard-nsys-") as folder:
        exported = _export(path, newest, Path(folder) / "export.sqlite", made_by)
        if words is not None:
            scrub_nsys_sqlite(exported, exported, words)
        tables = read_nsys_sqlite(exported, is_sound=words is not None)
    version = _text(made_by) if made_by else tables.tool_version
    environment = {**tables.environment, "nsys_export_version": _text(newest.version)}
    return dataclasses.replace(
        tables,
        kind=CaptureKind.NSYS_REP,
        path=path,
        tool_version=version,
        environment=environment,
    )


def report_version(path: Path) -> Version | None:
    """Return the version that made the report, None if the file does not say.

    CaptureError for anything that is not a finished report.
    """
    with path.open("rb") as stream:
        head = stream.read(4096)
    if path.suffix.lower() == ".qdstrm":
        raise CaptureError(
            path,
            (
                "this is an unfinished recording (.qdstrm): nsys was stopped "
                "before it wrote the report"
            ),
            "Run `QdstrmImporter -i FILE` of the same Nsight Systems (in its "
            "host-linux-x64 folder) and import the .nsys-rep; next time let the "
            "program exit before stopping nsys",
        )
    if head.startswith(LFS_MAGIC):
        raise CaptureError(
            path, "the file is a Git LFS pointer, not the report itself", "Run `git lfs pull`"
        )
    if not head:
        raise CaptureError(path, "the file is empty (0 bytes)", "Copy the report again")
    if not head.startswith(REPORT_MAGIC):
        raise CaptureError(
            path,
            "the file does not start like an Nsight Systems report",
            "Import an .nsys-rep or .qdrep file, or its SQLite export",
        )
    match = _HEADER_VERSION.search(head) or _search_body(path)
    return tuple(int(g) for g in match.groups() if g) if match else None


def _search_body(path: Path) -> re.Match[bytes] | None:
    with path.open("rb") as stream:
        return _BODY_VERSION.search(stream.read(SCAN_BYTES))


def find_nsys() -> list[NsysTool]:
    """Return every nsys on PATH and in NVIDIA's folders that answers with its version."""
    return [tool for path in _candidates() if (tool := _probe(path)) is not None]


def _candidates() -> Iterator[Path]:
    seen = set()
    folders = os.environ.get("PATH", "").split(os.pathsep)
    on_path = [Path(f) / "nsys" for f in folders if f]
    installed = [p for pattern in TOOL_GLOBS for p in Path("/").glob(pattern[1:])]
    for path in (*on_path, *installed):
        if path.is_file() and os.access(path, os.X_OK) and path.resolve() not in seen:
            seen.add(path.resolve())
            yield path


def _probe(path: Path) -> NsysTool | None:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _TOOL_VERSION.search(answer.stdout + answer.stderr)
    if match is None:
        return None
    return NsysTool(path=path, version=tuple(int(g) for g in match.groups() if g))


def _export(path: Path, tool: NsysTool, target: Path, made_by: Version | None) -> Path:
    # A copy by link keeps what nsys writes beside its input away from the user's folder.
    source = target.with_name("report" + path.suffix)
    try:
        os.link(path, source)
    except OSError:
        shutil.copyfile(path, source)
    command = [str(tool.path), "export", "-t", "sqlite", "-f", "true", "-o", str(target)]
    try:
        done = subprocess.run(
            [*command, str(source)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=EXPORT_LIMIT_S,
            cwd=target.parent,
        )
    except subprocess.TimeoutExpired:
        raise CaptureError(
            path, f"nsys export took longer than {EXPORT_LIMIT_S} s", "Export it manually"
        ) from None
    check_end(path, done.returncode)
    output = done.stdout + "\n" + done.stderr
    if too_new := _TOO_NEW.search(output):
        needed = tuple(int(n) for n in too_new.group(1).split("."))
        where = f"{_made(needed)}, newer than the nsys {_text(tool.version)} of this host"
        raise CaptureError(path, where, _advice(needed))
    if not target.is_file() or target.stat().st_size == 0:
        why = _last_line(output) or f"exit code {done.returncode}, no output"
        raise CaptureError(
            path,
            f"nsys {_text(tool.version)} could not export it ({why})",
            "The report may be cut off; copy it again, or use the nsys that made it",
        )
    return target


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return without_paths(lines[-1])[:200] if lines else ""


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def _made(version: Version | None) -> str:
    return f"made by Nsight Systems {_text(version)}" if version else "made by an unknown version"


def _advice(version: Version | None) -> str:
    needed = f"Nsight Systems {_text(version[:3])} or newer" if version else "Nsight Systems"
    return f"Install {needed} here, or export with it: nsys export --type sqlite FILE"
