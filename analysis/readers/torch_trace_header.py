"""What a trace's header says of the GPU, the versions and the settings; nothing private."""

from collections.abc import Mapping
from typing import Any

_MAX = 1 << 62


def _is_plain(value: Any) -> bool:
    """Return whether a header's value can be stored: text, or an integer of 64 bits."""
    return isinstance(value, str) or (isinstance(value, int) and abs(value) < _MAX)


def gpu_facts(header: Mapping[str, Any], device: int) -> dict[str, Any]:
    """Return what `deviceProperties` says of a device; {} where it says nothing."""
    stated = header.get("deviceProperties")
    listed = stated if isinstance(stated, list) else []
    found = [
        p for p in listed if isinstance(p, dict) and (p.get("id") == device or len(listed) == 1)
    ]
    if not found:
        return {}
    facts = found[0]
    out = {
        "name": facts.get("name"),
        "num_sms": facts.get("numSms"),
        "memory_bytes": facts.get("totalGlobalMem"),
    }
    if isinstance(facts.get("computeMajor"), int) and isinstance(facts.get("computeMinor"), int):
        out["compute_capability"] = f"{facts['computeMajor']}.{facts['computeMinor']}"
    return {k: v for k, v in out.items() if _is_plain(v)}


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
    found = {k: header[k] for k in wanted if _is_plain(header.get(k))}
    base_ns = header.get("baseTimeNanoseconds")
    if isinstance(base_ns, int) and not isinstance(base_ns, bool) and 0 < base_ns < 1 << 62:
        found["session_start_utc_ns"] = base_ns
    info = header.get("distributedInfo")
    if isinstance(info, dict):
        for key in ("backend", "rank", "world_size"):
            if _is_plain(info.get(key)):
                found[f"distributed.{key}"] = info[key]
    return found
