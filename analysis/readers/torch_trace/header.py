"""GPU, versions and settings from a trace's header; nothing private."""

from collections.abc import Mapping
from typing import Any

from captures.opening import clean_text

_MAX = 1 << 62


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that can be stored: text, and integers of 64 bits."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, str):
            kept[key] = clean_text(value)
        elif isinstance(value, int) and abs(value) < _MAX:
            kept[key] = value
    return kept


def gpu_facts(header: Mapping[str, Any], device: int) -> dict[str, Any]:
    """Return the facts of a device in `deviceProperties`; {} if there are none."""
    stated = header.get("deviceProperties")
    listed = stated if isinstance(stated, list) else []
    devices = [
        p for p in listed if isinstance(p, dict) and (p.get("id") == device or len(listed) == 1)
    ]
    if not devices:
        return {}
    facts = devices[0]
    out: dict[str, Any] = {}
    if isinstance(facts.get("name"), str) and facts["name"].strip():
        out["name"] = clean_text(facts["name"])
    for ours, theirs in (("num_sms", "numSms"), ("memory_bytes", "totalGlobalMem")):
        number = facts.get(theirs)
        if isinstance(number, int) and not isinstance(number, bool) and 0 < number < _MAX:
            out[ours] = number
    if isinstance(facts.get("computeMajor"), int) and isinstance(facts.get("computeMinor"), int):
        out["compute_capability"] = f"{facts['computeMajor']}.{facts['computeMinor']}"
    return out


def environment_of(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return versions and settings in the header; nothing that names a host or a person."""
    wanted = [
        "schemaVersion",
        "cuda_driver_version",
        "cuda_runtime_version",
        "cupti_version",
        "hip_driver_version",
        "hip_runtime_version",
        "roctracer_version",
        "pytorch_version",
        "record_shapes",
        "profile_memory",
        "with_stack",
        "with_flops",
        "with_modules",
    ]
    facts = _plain({k: header[k] for k in wanted if k in header})
    base_ns = header.get("baseTimeNanoseconds")
    if isinstance(base_ns, int) and not isinstance(base_ns, bool) and 0 < base_ns < 1 << 62:
        facts["session_start_utc_ns"] = base_ns
    info = header.get("distributedInfo")
    if isinstance(info, dict):
        shown = {f"distributed.{k}": info.get(k) for k in ("backend", "rank", "world_size")}
        facts |= _plain(shown)
    return facts


def base_ns(header: Mapping[str, Any]) -> int | None:
    """Return the UTC time [ns since 1970] that the trace's times count from, where it says so."""
    base = header.get("baseTimeNanoseconds")
    is_time = isinstance(base, int) and not isinstance(base, bool) and 0 < base < _MAX
    return base if is_time else None


def rank_of(header: Mapping[str, Any]) -> int | None:
    """Return the rank that `distributedInfo` names."""
    return _distributed(header, "rank", 0)


def world_size_of(header: Mapping[str, Any]) -> int | None:
    """Return how many ranks the job has, by `distributedInfo`."""
    return _distributed(header, "world_size", 1)


def _distributed(header: Mapping[str, Any], name: str, lowest: int) -> int | None:
    info = header.get("distributedInfo")
    value = info.get(name) if isinstance(info, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value < 1 << 31:
        return None
    return value
