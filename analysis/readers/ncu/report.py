"""Read an Nsight Compute report through NVIDIA's `ncu_report`, else through `ncu --import`.

The outer layout is checked first, so that native code never opens a truncated file. Layout
(NVIDIA's file format notes in Nsight Compute's extras, format version 7): `NVR\\0`, a sized file
header, then blocks of a sized header and a payload. A header is a protobuf message whose fields 1,
2 and 5 are the number of sources, the number of results and the payload's bytes.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from analysis.readers.ncu.csv import read_ncu_text, tables_of
from analysis.readers.ncu.table import NcuLaunch, NcuRule, NcuTable, unit_scale
from analysis.readers.tool_end import check_end
from analysis.tables import CaptureKind, CaptureTables, CaptureWarning
from captures.opening import reading
from captures.private import Cleaner, PrivateWords, private_field
from core.config import ROOT
from core.errors import CaptureError
from core.python import module_command

MAGIC = b"NVR\0"
_SOURCES, _RESULTS, _PAYLOAD = 1, 2, 5
_MAX_HEADER_BYTES = 64 << 20
_VERSION = re.compile(rb"(\d{4}\.\d+\.\d+\.\d+) \(build \d+\)")
_COPY_AGAIN = "Copy the report again, or profile again"


def check_layout(path: Path) -> tuple[int, str | None]:
    """Return the number of results and ncu's version; CaptureError where a block is cut off."""
    size = path.stat().st_size
    num_results, version = 0, None
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise CaptureError(path, "it does not start like an ncu report", _COPY_AGAIN)
        _sized(file, path, size)
        while file.tell() < size:
            start = file.tell()
            header = _sized(file, path, size)
            try:
                numbers = _varint_fields(header)
            except (ValueError, IndexError) as exc:
                raise CaptureError(
                    path, f"the block at byte {start} is damaged", _COPY_AGAIN
                ) from exc
            num_results += numbers.get(_RESULTS, 0)
            payload = numbers.get(_PAYLOAD, 0)
            end = file.tell() + payload
            if end > size:
                where = f"the report is cut off: its block at byte {start} ends at {end} of {size}"
                raise CaptureError(path, where, _COPY_AGAIN)
            for _ in range(numbers.get(_SOURCES, 0) + numbers.get(_RESULTS, 0)):
                entry = _sized(file, path, end)
                version = version or _version(entry)
            if file.tell() != end:
                raise CaptureError(path, f"the block at byte {start} is damaged", _COPY_AGAIN)
            version = version or _version(header)
    return num_results, version


def _version(data: bytes) -> str | None:
    match = _VERSION.search(data)
    return match[1].decode() if match else None


def _sized(file: BinaryIO, path: Path, end: int) -> bytes:
    """Return the bytes after a 4-byte length; they must end by `end`."""
    start = file.tell()
    length = int.from_bytes(file.read(4), "little")
    if start + 4 + length > end or length > _MAX_HEADER_BYTES * 16:
        raise CaptureError(path, f"the report is cut off or damaged at byte {start}", _COPY_AGAIN)
    return file.read(length)


def _varint_fields(data: bytes) -> dict[int, int]:
    """Return a protobuf message's whole numbers; ValueError or IndexError if it is none."""
    fields: dict[int, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            fields[tag >> 3], at = _varint(data, at)
        elif wire == 2:
            length, at = _varint(data, at)
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
    if at != len(data):
        raise ValueError("a field extends past the end")
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number has too many bytes")


_TIMEOUT_S = 300
_REMEDY = (
    "pip install ncu-report (NVIDIA's licence), or install Nsight Compute, or export it there: "
    "`ncu --import FILE --csv --page raw`"
)
_DAMAGED = "The file is damaged or cut off, or its ncu is newer than the reader: copy it again"
_NO_KERNELS = CaptureWarning(
    code="no_kernels_profiled",
    message="The report has no profiled kernel: ncu's filter matched none.",
)


def read_ncu_rep(path: Path, *, words: PrivateWords | None = None) -> CaptureTables:
    """Return counters and rules; CaptureError for a damaged report, or without a tool for it.

    With `words`, private data is removed.
    """
    with reading(path):
        num_results, version = check_layout(path)
    if find_spec("ncu_report") is not None:
        tables = _through_package(path)
    else:
        ncu = find_ncu()
        if ncu is None:
            raise CaptureError(
                path, "a .ncu-rep needs NVIDIA's reader, which is not installed", _REMEDY
            )
        tables = _through_ncu(path, ncu)
    num_read = 0 if tables.counters is None else len(tables.counters)
    if num_read != num_results:
        where = f"it has {num_results} results, of which {num_read} can be read"
        raise CaptureError(path, where, _DAMAGED)
    tables = replace(tables, tool_version=version)
    return tables if words is None else without_private(tables, path, words)


def find_ncu() -> str | None:
    """Return the ncu on PATH, else the newest in NVIDIA's usual folders."""
    on_path = shutil.which("ncu")
    if on_path:
        return on_path
    places = [
        *Path("/opt/nvidia/nsight-compute").glob("*/ncu"),
        *Path("/usr/local").glob("cuda*/bin/ncu"),
    ]
    return str(max(places)) if places else None


def _through_package(path: Path) -> CaptureTables:
    command = module_command("analysis.readers.ncu.report_child", str(path.absolute()))
    out = _run(path, command)
    try:
        launches = json.loads(out)["launches"]
        table, values = _launches(launches)
        checks = [] if launches else [_NO_KERNELS]
        return tables_of(path, CaptureKind.NCU_REP, table, values, checks)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CaptureError(path, "NVIDIA's reader could not parse it", _DAMAGED) from exc


def _launches(
    launches: list[dict[str, Any]],
) -> tuple[NcuTable, list[dict[tuple[str, str], float]]]:
    table = NcuTable(is_raw=True)
    values: list[dict[tuple[str, str], float]] = []
    for number, entry in enumerate(launches):
        table.launches.append(_launch(number, entry))
        values.append(
            {
                (name, unit_scale(unit)[1]): float("nan")
                if value is None
                else value * unit_scale(unit)[0]
                for name, (value, unit) in entry["metrics"].items()
                if not isinstance(value, str)
            }
        )
    return table, values


def _launch(number: int, entry: dict[str, Any]) -> NcuLaunch:
    metrics = entry["metrics"]

    def dims(kind: str) -> str | None:
        sizes = [metrics.get(f"launch__{kind}_dim_{axis}", [None])[0] for axis in "xyz"]
        return None if None in sizes else ",".join(str(int(s)) for s in sizes)

    major, minor = (
        metrics.get(f"device__attribute_compute_capability_{part}", [None])[0]
        for part in ("major", "minor")
    )
    launch = NcuLaunch(
        id=str(number),
        process="",
        line=number,
        kernel=entry["kernel"],
        grid=dims("grid"),
        block=dims("block"),
        device=str(metrics.get("launch__device_id", [""])[0]),
        compute_capability=None if None in (major, minor) else f"{major}.{minor}",
        path=entry["path"],
    )
    name = metrics.get("device__attribute_display_name", [None])[0]
    if name:
        launch.tokens["device__attribute_display_name", ""] = str(name)
    launch.rules = [
        NcuRule(
            rule=r["rule"],
            kind=r["kind"],
            message=r["message"],
            speedup="" if r["speedup"] is None else repr(float(r["speedup"])),
        )
        for r in entry["rules"]
    ]
    return launch


def _through_ncu(path: Path, ncu: str) -> CaptureTables:
    command = [ncu, "--import", str(path.absolute()), "--csv", "--page", "raw"]
    with reading(path):
        text = _run(path, [*command, "--print-units", "base"])
    if "No kernels were profiled" in text or not text.strip():
        return tables_of(path, CaptureKind.NCU_REP, NcuTable(is_raw=True), [], [_NO_KERNELS])
    note = CaptureWarning(
        code="rules_not_read",
        message="Rule messages were not read: they need the ncu-report package.",
    )
    return read_ncu_text(path, text, CaptureKind.NCU_REP, (note,))


def _run(path: Path, command: list[str]) -> str:
    """Return the command's output; CaptureError where it fails, hangs or dies."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_TIMEOUT_S,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as exc:
        raise CaptureError(
            path, f"its reader did not finish within {_TIMEOUT_S} s", _DAMAGED
        ) from exc
    check_end(path, done.returncode)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1][:200] if lines else f"exit status {done.returncode}"
        raise CaptureError(path, f"NVIDIA's reader failed on it ({why})", _DAMAGED)
    return done.stdout.decode("utf-8", "replace")


_LEARNED_BYTES = 8 << 20
"""How much of the file is read for the names of people and hosts in it."""


def without_private(tables: CaptureTables, report: Path, words: PrivateWords) -> CaptureTables:
    """Return the tables cleaned; `words` also learns from the report's own bytes."""
    with report.open("rb") as file:
        text = file.read(_LEARNED_BYTES).decode("latin-1")
    words.learn(text)
    words.learn_from_paths(text)
    cleaner = Cleaner(words)
    changed: dict[str, Any] = {}
    for field in fields(tables):
        value = getattr(tables, field.name)
        if isinstance(value, pd.DataFrame):
            changed[field.name] = _frame(value, cleaner)
    return replace(
        tables,
        **changed,
        gpu=_facts(tables.gpu, cleaner),
        environment=_facts(tables.environment, cleaner),
        warnings=tuple(
            CaptureWarning(code=w.code, message=cleaner.text(w.message)) for w in tables.warnings
        ),
    )


def _frame(frame: pd.DataFrame, cleaner: Cleaner) -> pd.DataFrame:
    cleaned = {
        name: [cleaner.text(v) if isinstance(v, str) else v for v in column]
        for name, column in frame.items()
        if column.dtype == object or isinstance(column.dtype, pd.StringDtype)
    }
    return frame.assign(**{str(k): pd.Series(v, frame.index, object) for k, v in cleaned.items()})


def _facts(facts: Mapping[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    named = {}
    for name, value in facts.items():
        if name == "uuid" and isinstance(value, str):
            value = cleaner.words.device(value)
        elif isinstance(value, str):
            value = None if private_field(name) else cleaner.text(value)
        if value is not None and value != "":
            named[name] = value
    return named
