"""Read and check `manifest.json` of a bundle: what `docs/architecture.md` calls a bundle."""

import math
import os
import stat
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from core.errors import CaptureError, UserError
from core.foreign import bounded_json, checked_gpu
from core.program_settings import parse_settings
from core.spec import JobSpec
from core.states import Pass

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
MAX_MANIFEST_BYTES = 16 * 2**20
"""A million samples take 10 MB."""
_MAX_DEPTH = 20
_MAX_TEXT_CHARS = 1 << 20
_MAX_INT = 2**63
STATUSES = ("done", "oom", "failed", "cancelled")
_REMEDY = "The bundle was not written by `warpboard run`, or was modified; create it again"
_MAX_SAMPLE_NS = 2**62
_MAX_PROCESSES = 1 << 20
_MAX_JOB_CHARS = 300
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "manifest": ("error", "run_id", "worker_id", "log"),
    "pass": ("status", "outcome", "error"),
    "capture": ("tool", "tool_version"),
    "metric": ("unit", "phase", "better"),
}
"""Fields that may be absent or null; each is a text otherwise."""
_TIMES = ("started_at", "finished_at")
CLOCKS: tuple[str, ...] = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "power_w",
    "utilization_pct",
)
"""Readings of a GPU: a number before and after a pass, `min`, `median` and `max` during it."""


def load_manifest(folder: Path) -> dict[str, Any]:
    """Return the checked manifest of a bundle folder; CaptureError names the wrong field."""
    path = folder / MANIFEST
    with open(path, "rb", opener=not_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CaptureError(path, "it is not a regular file", _REMEDY)
        text = file.read(MAX_MANIFEST_BYTES + 1)
    if len(text) > MAX_MANIFEST_BYTES:
        raise CaptureError(path, f"it is larger than {MAX_MANIFEST_BYTES} bytes", _REMEDY)
    try:
        data = bounded_json(text)
    except ValueError as exc:
        raise CaptureError(path, f"it is not valid JSON ({exc})", _REMEDY) from exc
    return check_manifest(data, path)


def not_waiting(path: str, flags: int) -> int:
    """Open what may have become a pipe since it was looked at."""
    return os.open(path, flags | os.O_NONBLOCK)


def check_manifest(data: Any, path: Path | str = MANIFEST) -> dict[str, Any]:
    """Return `data` when it has every field that is read later, of the right type; CaptureError."""
    _expect(path, "manifest", data, dict)
    _check_values(path, data)
    if data.get("schema_version") != SCHEMA_VERSION:
        version = data.get("schema_version")
        remedy = "Import it with the version of Warpboard that wrote it, or a newer one"
        raise CaptureError(path, f"schema_version is {version!r}, not {SCHEMA_VERSION}", remedy)
    if data.get("status") not in STATUSES:
        raise _wrong(path, "status", data.get("status"), " or ".join(STATUSES))
    job = _expect(path, "job", data.get("job"), dict)
    _check_job(path, job)
    try:
        JobSpec.from_dict(job)
    except (KeyError, TypeError, ValueError, AttributeError, UserError) as exc:
        raise CaptureError(path, f"job cannot be read ({exc!r})", _REMEDY) from exc
    for name in ("gpu", "environment", "oom"):
        _expect(path, name, data.get(name), dict, type(None))
    try:
        checked_gpu(data.get("gpu"))
    except UserError as exc:
        raise CaptureError(path, str(exc), _REMEDY) from exc
    _check_texts(path, "manifest", "", data)
    _check_flat(path, "oom", data.get("oom"))
    _check_warnings(path, "warnings", data.get("warnings"))
    names: set[str] = set()
    for i, entry in enumerate(_expect(path, "passes", data.get("passes"), list)):
        _check_pass(path, f"passes[{i}]", entry, names)
    return dict(data)


def _check_job(path: Path | str, job: Mapping[str, Any]) -> None:
    for name in ("workload", "gpu"):
        text = _expect(path, f"job.{name}", job.get(name) or "", str)
        if len(text) > _MAX_JOB_CHARS:
            raise _wrong(path, f"job.{name}", text, f"at most {_MAX_JOB_CHARS} characters")
    params = _expect(path, "job.params", job.get("params") or {}, dict)
    if job.get("workload") == "command" and params.get("settings") is not None:
        try:
            parse_settings(_expect(path, "job.params.settings", params["settings"], str))
        except UserError as exc:
            raise CaptureError(path, f"job.params.{exc}", _REMEDY) from exc


def _check_texts(path: Path | str, kind: str, where: str, record: Mapping[str, Any]) -> None:
    for name in _TEXTS[kind]:
        _expect(path, f"{where}{name}", record.get(name), str, type(None))
    for name in _TIMES:
        if record.get(name) is not None:
            _check_time(path, f"{where}{name}", record[name])


def _check_time(path: Path | str, where: str, value: Any) -> None:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError) as exc:
        raise _wrong(path, where, value, "a time such as 2026-01-31T12:00:00Z") from exc


def _check_flat(path: Path | str, where: str, record: Any) -> None:
    """Refuse values that cannot be sizes: `..._bytes`, `num_...`, `flops`, `bytes`."""
    for name, value in (_expect(path, where, record, dict, type(None)) or {}).items():
        at = f"{where}.{name[:40]}"
        if value is None:
            continue
        if name.endswith("_bytes"):
            _expect(path, at, value, int)
        elif name.startswith("num_") or name in ("flops", "bytes"):
            _expect(path, at, value, int, float)
        else:
            continue
        if value < 0:
            raise _wrong(path, at, value, "a number from 0")


def _check_values(path: Path | str, data: dict[str, Any]) -> None:
    """Refuse what JSON can write and no table can hold, wherever it stands in the manifest."""
    waiting: list[tuple[str, Any, int]] = [("manifest", data, 0)]
    sound_names: set[str] = set()
    while waiting:
        where, value, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise CaptureError(path, f"{where[:80]} is nested too deeply", _REMEDY)
        if isinstance(value, list) and _are_small_integers(value, _MAX_INT):
            continue
        if isinstance(value, dict):
            for name in (n for n in value if n not in sound_names):
                if not _can_be_stored(name):
                    raise _wrong(path, f"a name in {where[:80]}", name, "one that can be stored")
                sound_names.add(name)
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, (dict, list)):
                waiting.append((f"{where}.{key}", item, depth + 1))
            elif not _can_be_stored(item):
                raise _wrong(path, f"{where}.{key!r:.60}", item, "a value that can be stored")


def _are_small_integers(values: list[Any], limit: int) -> bool:
    """Say whether all are integers below a limit: of samples there may be a million."""
    is_integers = set(map(type, values)) == {int}
    return is_integers and -limit < min(values) and max(values) < limit


def _can_be_stored(value: Any) -> bool:
    if type(value) is str and value.isascii():  # nearly all are
        return len(value) <= _MAX_TEXT_CHARS and "\0" not in value
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < _MAX_INT
    if isinstance(value, str):
        has_half_pair = not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)
        return len(value) <= _MAX_TEXT_CHARS and "\0" not in value and not has_half_pair
    return True


def _check_pass(path: Path | str, where: str, entry: Any, names: set[str]) -> None:
    _expect(path, where, entry, dict)
    if entry.get("pass") not in tuple(Pass):
        raise _wrong(path, f"{where}.pass", entry.get("pass"), ", ".join(Pass))
    process = _expect(path, f"{where}.process", entry.get("process", 0), int)
    if not 0 <= process < _MAX_PROCESSES:
        raise _wrong(path, f"{where}.process", process, f"a number from 0 to {_MAX_PROCESSES}")
    _check_texts(path, "pass", f"{where}.", entry)
    _expect(path, f"{where}.notes", entry.get("notes"), dict, type(None))
    _check_clocks(path, f"{where}.clocks", entry.get("clocks"))
    _expect(path, f"{where}.command", entry.get("command"), list, str, type(None))
    duration_s = _expect(path, f"{where}.duration_s", entry.get("duration_s", 0) or 0, int, float)
    if duration_s < 0:
        raise _wrong(path, f"{where}.duration_s", duration_s, "a number from 0")
    _check_warnings(path, f"{where}.warnings", entry.get("warnings"))
    result = _expect(path, f"{where}.result", entry.get("result"), dict, type(None)) or {}
    _check_result(path, f"{where}.result", result)
    for i, capture in enumerate(_expect(path, f"{where}.captures", entry.get("captures"), list)):
        at = f"{where}.captures[{i}]"
        _expect(path, at, capture, dict)
        for field, kind in (("file", str), ("kind", str), ("sha256", str), ("bytes", int)):
            _expect(path, f"{at}.{field}", capture.get(field), kind)
        if capture["bytes"] < 0:
            raise _wrong(path, f"{at}.bytes", capture["bytes"], "a size")
        check_file_name(path, f"{at}.file", capture["file"])
        if capture["file"] in names:
            raise _wrong(path, f"{at}.file", capture["file"], "a name that no other capture has")
        names.add(capture["file"])
        _check_texts(path, "capture", f"{at}.", capture)
        removed = _expect(path, f"{at}.private_removed", capture.get("private_removed") or [], list)
        for text in removed:
            _expect(path, f"{at}.private_removed", text, str)


def _check_clocks(path: Path | str, where: str, clocks: Any) -> None:
    given = _expect(path, where, clocks, dict, type(None)) or {}
    for moment in ("before", "during", "after"):
        at = f"{where}.{moment}"
        readings = _expect(path, at, given.get(moment), dict, type(None)) or {}
        for name in CLOCKS:
            value = readings.get(name)
            if moment != "during":
                _expect(path, f"{at}.{name}", value, int, float, type(None))
            elif reading := _expect(path, f"{at}.{name}", value, dict, type(None)):
                for part in ("min", "median", "max"):
                    _expect(path, f"{at}.{name}.{part}", reading.get(part), int, float)
        at = f"{at}.throttle_reasons"
        for reason in _expect(path, at, readings.get("throttle_reasons") or [], list):
            _expect(path, at, reason, str)


def check_file_name(path: Path | str, where: str, name: str) -> str:
    """Return a file name that stays inside its folder; CaptureError otherwise."""
    if not is_plain_name(name):
        raise CaptureError(path, f"{where} {name!r} is not a plain file name", _REMEDY)
    return name


def is_plain_name(name: str) -> bool:
    """Say whether this is one path component that names a visible file."""
    plain = name == Path(name).name and "\\" not in name and name.isprintable()
    return plain and not name.startswith(".") and 0 < len(name.encode()) <= 200


def _check_result(path: Path | str, where: str, result: Mapping[str, Any]) -> None:
    _check_samples(path, f"{where}.samples_ns", result.get("samples_ns"))
    at = f"{where}.phase_samples_ns"
    phases = _expect(path, at, result.get("phase_samples_ns"), dict, type(None)) or {}
    for phase, samples in phases.items():
        _check_samples(path, f"{at}.{phase[:40]}", samples)
    for i, metric in enumerate(
        _expect(path, f"{where}.metrics", result.get("metrics") or [], list)
    ):
        at = f"{where}.metrics[{i}]"
        _expect(path, at, metric, dict)
        _expect(path, f"{at}.name", metric.get("name"), str)
        value = _expect(path, f"{at}.value", metric.get("value"), int, float)
        if not math.isfinite(value):
            raise _wrong(path, f"{at}.value", value, "a finite number")
        _check_texts(path, "metric", f"{at}.", metric)
    _expect(path, f"{where}.environment", result.get("environment"), dict, type(None))
    for name in ("cost", "memory", "device", "compile", "oom"):
        _check_flat(path, f"{where}.{name}", result.get(name))
    _check_warnings(path, f"{where}.warnings", result.get("warnings"))


def _check_samples(path: Path | str, where: str, given: Any) -> None:
    samples = _expect(path, where, given or [], list)
    is_sound = _are_small_integers(samples, _MAX_SAMPLE_NS) and min(samples) >= 0
    for i, value in enumerate(() if is_sound else samples):
        if type(value) is not int or not 0 <= value < _MAX_SAMPLE_NS:
            raise _wrong(path, f"{where}[{i}]", value, "a whole number of ns")


def _check_warnings(path: Path | str, where: str, entries: Any) -> None:
    for i, entry in enumerate(_expect(path, where, entries or [], list)):
        _expect(path, f"{where}[{i}]", entry, dict)
        for field in ("code", "message"):
            _expect(path, f"{where}[{i}].{field}", entry.get(field), str)


def _expect(path: Path | str, where: str, value: Any, *kinds: type) -> Any:
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return value
    raise _wrong(path, where, value, " or ".join(k.__name__ for k in kinds))


def _wrong(path: Path | str, where: str, value: Any, wanted: str) -> CaptureError:
    shown = repr(value)[:60]
    return CaptureError(path, f"{where} is {shown}, expected {wanted}", _REMEDY)
