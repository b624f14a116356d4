"""Detect a file's format by its content; its name is used in messages only."""

import re
import sqlite3
from pathlib import Path

from analysis.readers.latency_csv import latency_column, time_columns
from analysis.tables import CaptureKind
from captures.opening import decode_text, is_gzip, open_capture, reading, utf16_of
from captures.pickle_data import PickleRefusedError
from core.errors import CaptureError

_HEAD_BYTES = 256 << 10
_TEXT_HEAD_BYTES = 4 << 20
"""Program output can stand before the table; this much of it is looked through."""

_FOREIGN = (
    (b"PK\x03\x04", "a zip archive", "Unpack it and import the files inside"),
    (b"\x1f\x8b", "a gzip file inside another", "Decompress it once and import the result"),
    (b"BZh", "a bzip2 archive", "Unpack it and import the file inside"),
    (b"\xfd7zXZ", "an xz archive", "Unpack it and import the file inside"),
    (b"7z\xbc\xaf", "a 7-Zip archive", "Unpack it and import the files inside"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "Unpack it and import the file inside"),
    (b"%PDF", "a PDF", "Import the capture itself"),
    (b"\x89PNG", "a picture", "Import the capture itself"),
    (b"\xff\xd8\xff", "a picture", "Import the capture itself"),
    (b"\x7fELF", "a program", "Import the capture that a profiler made of it"),
    (b"PAR1", "a Parquet file", "Import the nsys report or its SQLite export"),
    (b"ARROW1", "an Arrow file", "Import the nsys report or its SQLite export"),
    (b"\x0a\x8d\x01", "a Perfetto trace", "Import the PyTorch trace as JSON"),
)
_NOT_IN_GZIP = {
    CaptureKind.NSYS_SQLITE: "SQLite database",
    CaptureKind.NSYS_REP: "nsys report",
    CaptureKind.NCU_REP: "ncu report",
}
_MAGIC = {
    b"SQLite format 3\0": CaptureKind.NSYS_SQLITE,
    b"NVR\0": CaptureKind.NCU_REP,
    b"NVIDIA Tegra Profiler Report": CaptureKind.NSYS_REP,
}
"""How the files of kinds begin that are no text."""
_NVIDIA = "Record the program with `nsys profile` and import its report"
_AMD = "Record the program with torch.profiler, or import rocprof's Chrome trace (results.json)"
_ACCEPTED = (
    "Accepted are nsys reports and SQLite exports, nsys and ncu CSV, ncu reports and logs, PyTorch "
    "traces and memory snapshots, CSV with a latency column, and bundles"
)
_NCU_LINE = re.compile(r"^==(PROF|WARNING|ERROR|LOG)==", re.MULTILINE)
_NCU_HEADER = re.compile(
    r'^\ufeff?"?(ID"?[,;\t]"?(Process ID|Kernel Name)|Process ID"?[,;\t]"?Process Name)',
    re.MULTILINE,
)
_NCU_SOURCE = re.compile(r"^(?=.*\bSource\b).*\bWarp Stall Sampling\b", re.MULTILINE)
_NSYS_CSV = re.compile(
    r'^"?(Time ?\(%\)|Total ?\([KMGT]?i?B\)|Total,Operations|(API |Projected )?Start ?\(\w+\)|Range'
    r"|GridXYZ|NVTX Range|PID,TID,DevId|Virtual Address|CPU Page Faults|Total HtoD Migration Size"
    r'|Name"?,"?Projected Start|Duration ?\(\w+\)"?,"?Start)"?([,;\t ]|$)'
    r"|^(?=.*\bTotal Time ?\(\S+\))(?=.*\b(Instances|Num Calls|Count)\b).*[,;\t]"  # in any order
    r"|^SKIPPED: .*|^Processing \[.*(sqlite|stats)|^ ?\*\* .*\([a-z0-9_]+(:\w+)*\):",
    re.MULTILINE,
)
_NSYS_TABLE = re.compile(r"^ *(Time ?\(%\)|Total ?\([KMGT]?i?B\)) {2,}\w.* Name *$", re.MULTILINE)
"""A text table of `nsys stats` or `nsys profile --stats=true`."""
_OTHER_TOOLS = (
    (r"^==\d+== (NVPROF|Profiling result|Profiling application)", "nvprof's output", _NVIDIA),
    (
        r"^(Kernel|Iteration|Tensor Core|Op Type|Group Node) Report *$",
        "a report of DLProf",
        _NVIDIA,
    ),
    (
        r'^"?(Index"?,"?KernelName|Name"?,"?Calls"?,"?TotalDurationNs|Kind"?,"?Agent_Id'
        r'|Dispatch_ID"?,"?(Kernel_Name|GPU_ID))\b',
        "a table of ROCm's profiler",
        _AMD,
    ),
)
"""First line -> what wrote it, and what to record instead."""
_SNAPSHOT_KEYS = (b"segments", b"device_traces")


def detect(path: Path) -> CaptureKind:
    """Return the kind of a file or bundle folder.

    Raises CaptureError for anything else: the message says what it is instead and what to do.
    """
    with reading(path):
        if path.is_dir():
            return _detect_folder(path)
        if not path.exists():
            raise CaptureError(path, "there is no such file", "Check the path")
        if not path.is_file():
            raise CaptureError(path, "is not a regular file", "Import a file or a bundle folder")
        if path.stat().st_size == 0:
            raise CaptureError(path, "the file is empty (0 bytes)", "Export or copy it again")
        with open_capture(path) as stream:
            head = stream.read(_HEAD_BYTES)
            kind = _detect_head(path, head)
            if kind in _NOT_IN_GZIP and is_gzip(path):
                raise CaptureError(
                    path, f"this is a compressed {_NOT_IN_GZIP[kind]}", "Decompress it with gunzip"
                )
            if kind is CaptureKind.NSYS_SQLITE:
                _check_is_nsys(path)
            return kind or _detect_text(path, head + stream.read(_TEXT_HEAD_BYTES))


def check_kind(path: Path, kind: CaptureKind) -> None:
    """CaptureError for a file that begins as one of another kind than is said of it.

    A text reader would look for lines and cells in all of a large database.
    """
    with reading(path), open_capture(path) as stream:
        head = stream.read(64)
    found = next((str(k) for magic, k in _MAGIC.items() if head.startswith(magic)), None)
    found = found or next((what for magic, what, _ in _FOREIGN if head.startswith(magic)), None)
    if found not in (None, kind):
        raise CaptureError(path, f"this is {found}, not {kind} as is said of it", "Record it again")


def _detect_folder(path: Path) -> CaptureKind:
    if (path / "manifest.json").is_file():
        return CaptureKind.BUNDLE
    raise CaptureError(
        path, "the folder has no manifest.json", "Import the files in it, or a bundle folder"
    )


def _detect_head(path: Path, head: bytes) -> CaptureKind | None:
    if not head:
        raise CaptureError(path, "the compressed file is empty", "Export or copy it again")
    if head.startswith(b"version https://git-lfs"):
        raise CaptureError(
            path,
            "this is a Git LFS pointer, not the file itself",
            "Fetch the content with `git lfs pull` and import that",
        )
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if _is_qdstrm(path, head):
        raise CaptureError(
            path,
            "this is an unfinished nsys recording (.qdstrm): nsys was stopped "
            "before it wrote a report",
            "Convert it with the QdstrmImporter of the nsys that recorded it and import the report",
        )
    for magic, what, remedy in _FOREIGN:
        if head.startswith(magic):
            raise CaptureError(path, f"this is {what}", remedy)
    if _is_pickle(head):
        return _detect_pickle(path, head)
    return None


def _is_qdstrm(path: Path, head: bytes) -> bool:
    """The format is undocumented, so here the file name counts too."""
    named_inside = b"QDSTRM" in head[:256].upper() and b"\0" in head[:4096]
    return named_inside or path.suffix.lower() == ".qdstrm"


def _is_pickle(head: bytes) -> bool:
    if head[0] == 0x80 and len(head) > 1 and head[1] <= 5:
        return True
    # Protocols 0 and 1 have no mark; a dictionary or list starts them.
    return head[:3] in (b"(dp", b"(lp") or head[:2] in (b"}q", b"]q")


def _detect_pickle(path: Path, head: bytes) -> CaptureKind:
    if any(key in head for key in _SNAPSHOT_KEYS):
        return CaptureKind.MEMORY_SNAPSHOT
    if head[:1] == b"\x80" and b"torch" in head[:4096] and b"storage" in head:
        raise CaptureError(path, "this is a saved PyTorch model", "Import a capture instead")
    try:
        from analysis.readers.memory.snapshot import load_snapshot

        load_snapshot(path)
    except PickleRefusedError as exc:  # pragma: no cover - load_snapshot wraps it
        raise CaptureError(path, str(exc), _ACCEPTED) from exc
    return CaptureKind.MEMORY_SNAPSHOT


def _check_is_nsys(path: Path) -> None:
    from captures.database import open_immutable, sidecars
    from captures.nsys_database import refuse_nvprof

    if sidecars(path):
        return  # the tables may be in there: only the reader's private copy can tell
    try:
        connection = open_immutable(path)
        try:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        finally:
            connection.close()
    except sqlite3.Error:
        return  # a damaged database is the reader's to explain
    refuse_nvprof(path, names)
    if any(name.startswith("rocpd_") for name in names):
        raise CaptureError(path, "this is a database of ROCm's profiler (rocpd)", _AMD)
    known = ("CUPTI_ACTIVITY", "NVTX_", "TARGET_INFO", "META_DATA_", "EXPORT_META_DATA", "OSRT_")
    markers = {"StringIds", "ANALYSIS_DETAILS", "PROCESSES", "ThreadNames"}
    if names and not markers & names and not any(n.startswith(known) for n in names):
        shown = ", ".join(sorted(names)[:4])
        raise CaptureError(
            path,
            f"the SQLite database is not from nsys (it has {shown})",
            "Export one with `nsys export --type sqlite`",
        )


def _detect_text(path: Path, data: bytes) -> CaptureKind:
    if b"\0" in data[:4096] and utf16_of(data) is None:
        raise CaptureError(path, "the file type is not recognised (binary)", _ACCEPTED)
    text = decode_text(data)
    start = text.lstrip("\ufeff \t\r\n")
    if not start:
        raise CaptureError(path, "the file contains only blanks", "Export or copy it again")
    if re.match(r"<(!doctype html|html|head|body)", start[:64], re.IGNORECASE):
        raise CaptureError(
            path, "this is a web page, not a capture", "Download the raw file and import that"
        )
    if start[0] in "{[":
        return _detect_json(path, start)
    if _NCU_HEADER.search(text):
        return CaptureKind.NCU_CSV
    if _NSYS_CSV.search(text) or _NSYS_TABLE.search(text):
        return CaptureKind.NSYS_CSV
    if _NCU_LINE.search(text):
        return CaptureKind.NCU_LOG
    for pattern, what, remedy in _OTHER_TOOLS:
        if re.search(pattern, text[:4096], re.MULTILINE):
            raise CaptureError(path, f"this is {what}", remedy)
    if latency_column(text):
        return CaptureKind.LATENCY_CSV
    if _NCU_SOURCE.search(text):
        return CaptureKind.NCU_SOURCE
    if times := time_columns(text):
        listed = ", ".join(times[:MAX_COLUMNS])
        why = f"no column name contains latency and a unit; these may be times: {listed}"
        raise CaptureError(
            path, why, "Rename the column with the time of an iteration to latency_ms"
        )
    raise CaptureError(path, f"the file type is not recognised ({_first_line(text)})", _ACCEPTED)


MAX_COLUMNS = 5
"""Columns that a message names."""


def _detect_json(path: Path, start: str) -> CaptureKind:
    if start[0] == "{" and '"traceEvents"' in start:
        return CaptureKind.TORCH_TRACE
    if re.match(r'\[\s*\{[^{}]{0,2000}?"(ph|ts|cat)"\s*:', start):
        return CaptureKind.TORCH_TRACE
    if re.match(r'\{\s*"(schemaVersion|deviceProperties|distributedInfo|displayTimeUnit)"', start):
        return CaptureKind.TORCH_TRACE
    if re.match(r'\[\s*\{\s*"(Time|Total|Start|Range|Name)\b[^"]{0,40}"\s*:', start):
        text = "this is a report of nsys stats as JSON"
        raise CaptureError(path, text, "Run `nsys stats --format csv`, or import the .sqlite")
    if '"warpboard_version"' in start and '"passes"' in start:
        raise CaptureError(
            path, "this is only the manifest of a bundle", "Import the folder that contains it"
        )
    if _NCU_LINE.search(start):
        return CaptureKind.NCU_CSV if _NCU_HEADER.search(start) else CaptureKind.NCU_LOG
    raise CaptureError(path, "the JSON has no `traceEvents`: not a PyTorch trace", _ACCEPTED)


def _first_line(text: str) -> str:
    line = next((li.strip() for li in text.splitlines() if li.strip()), "")
    return f"it starts with {line[:40]!r}"
