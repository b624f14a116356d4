"""The outer layout of a .ncu-rep: enough to see that it is whole before native code opens it.

Layout (NVIDIA's file format notes in Nsight Compute's extras, format version 7): `NVR\\0`, a sized
file header, then blocks of a sized header and a payload. A header is a protobuf message whose
fields 1, 2 and 5 are the number of sources, the number of results and the payload's bytes.
"""

import re
from pathlib import Path
from typing import BinaryIO

from core.errors import CaptureError

MAGIC = b"NVR\0"
_SOURCES, _RESULTS, _PAYLOAD = 1, 2, 5
_MAX_HEADER_BYTES = 64 << 20
_VERSION = re.compile(rb"(\d{4}\.\d+\.\d+\.\d+) \(build \d+\)")
_REMEDY = "Copy the report again, or profile again"


def check_layout(path: Path) -> tuple[int, str | None]:
    """Return the number of results and ncu's version; CaptureError where a block is cut off."""
    size = path.stat().st_size
    num_results, version = 0, None
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise CaptureError(path, "it does not start as an ncu report", _REMEDY)
        _sized(file, path, size)
        while file.tell() < size:
            start = file.tell()
            header = _sized(file, path, size)
            try:
                numbers = _varint_fields(header)
            except (ValueError, IndexError) as exc:
                raise CaptureError(path, f"the block at byte {start} is damaged", _REMEDY) from exc
            num_results += numbers.get(_RESULTS, 0)
            payload = numbers.get(_PAYLOAD, 0)
            end = file.tell() + payload
            if end > size:
                where = f"the report is cut off: its block at byte {start} ends at {end} of {size}"
                raise CaptureError(path, where, _REMEDY)
            for _ in range(numbers.get(_SOURCES, 0) + numbers.get(_RESULTS, 0)):
                entry = _sized(file, path, end)
                version = version or _version(entry)
            if file.tell() != end:
                raise CaptureError(path, f"the block at byte {start} is damaged", _REMEDY)
            version = version or _version(header)
    return num_results, version


def _version(data: bytes) -> str | None:
    found = _VERSION.search(data)
    return found[1].decode() if found else None


def _sized(file: BinaryIO, path: Path, end: int) -> bytes:
    """Return the bytes after a 4-byte length; they must end by `end`."""
    start = file.tell()
    length = int.from_bytes(file.read(4), "little")
    if start + 4 + length > end or length > _MAX_HEADER_BYTES * 16:
        raise CaptureError(path, f"the report is cut off or damaged at byte {start}", _REMEDY)
    return file.read(length)


def _varint_fields(data: bytes) -> dict[int, int]:
    """Return a protobuf message's whole numbers; ValueError or IndexError if it is none."""
    found: dict[int, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            found[tag >> 3], at = _varint(data, at)
        elif wire == 2:
            length, at = _varint(data, at)
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
    if at != len(data):
        raise ValueError("a field goes past the end")
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number of too many bytes")
