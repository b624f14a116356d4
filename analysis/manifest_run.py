"""Turn a checked manifest and the captures beside it into `RunData`."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.rundata import RUN_SAMPLE_COLUMNS, PassWarning, RunCapture, RunData, RunMetric
from analysis.tables import CaptureWarning
from captures.contents import hash_of
from core.spec import JobSpec
from core.states import Pass

MOMENTS = frozenset({"session_start_utc_ns"})
"""What a reader says about one recording, not about its surroundings: no two runs share it."""


def from_manifest(
    manifest: Mapping[str, Any],
    captures: tuple[RunCapture, ...],
    broken: tuple[PassWarning, ...] = (),
) -> RunData:
    """Return the run that a checked manifest and its captures describe."""
    passes = manifest["passes"]
    results = [(p, p.get("result") or {}) for p in passes]
    clean = [r for p, r in results if p["pass"] == Pass.CLEAN]
    environment = dict(manifest.get("environment") or {})
    for result in clean:
        environment = dict(result.get("environment") or {}) | environment
    frames = [_result_samples(p, r) for p, r in results]
    return RunData(
        status=manifest["status"],
        job=JobSpec.from_dict(manifest["job"]),
        run_id=manifest.get("run_id"),
        captures=captures,
        samples=pd.concat([*frames, capture_samples(list(captures))], ignore_index=True),
        metrics=_result_metrics(results),
        gpu={**gpu_of(list(captures)), **_known(manifest.get("gpu") or {})},
        environment=environment_of(list(captures), environment),
        cost=next((r["cost"] for r in clean if r.get("cost")), {}),
        memory_peaks=_memory_peaks(clean),
        passes=tuple(_pass_record(p) for p in passes),
        oom=manifest.get("oom") or next((r["oom"] for _, r in results if r.get("oom")), None),
        error=manifest.get("error"),
        warnings=_manifest_warnings(manifest) + broken + capture_warnings(list(captures)),
        started_at=manifest.get("started_at"),
        finished_at=manifest.get("finished_at"),
        content_hash=hash_of(manifest),
    )


def gpu_of(captures: Sequence[RunCapture]) -> dict[str, Any]:
    """Return what the captures say of the GPU together; where they differ the first named one."""
    facts_of_captures = [_known(c.tables.gpu) for c in captures if c.tables.gpu]
    merged: dict[str, Any] = {}
    for facts in sorted(facts_of_captures, key=lambda f: "name" not in f):
        merged = facts | merged
    return merged


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None}


def environment_of(captures: Sequence[RunCapture], own: Mapping[str, Any]) -> dict[str, str]:
    merged: dict[str, Any] = {}
    for capture in captures:
        merged = dict(capture.tables.environment) | merged
    joined = merged | dict(own)
    return {str(k): str(v) for k, v in joined.items() if v is not None and k not in MOMENTS}


def capture_samples(captures: Sequence[RunCapture]) -> pd.DataFrame:
    frames = []
    for capture in captures:
        samples = capture.tables.samples
        if samples is not None and len(samples):
            own = samples.assign(**{"pass": capture.pass_name})
            own["process"] = own["process"] + 1000 * capture.process
            frames.append(own[list(RUN_SAMPLE_COLUMNS)])
    empty = pd.DataFrame({c: [] for c in RUN_SAMPLE_COLUMNS})
    return pd.concat(frames, ignore_index=True) if frames else empty


def _result_samples(entry: Mapping[str, Any], result: Mapping[str, Any]) -> pd.DataFrame:
    values = result.get("samples_ns") or []
    return pd.DataFrame(
        {
            "pass": [entry["pass"]] * len(values),
            "process": [entry.get("process", 0)] * len(values),
            "iteration": list(range(len(values))),
            "latency_ns": values,
        }
    )


def _result_metrics(
    results: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> tuple[RunMetric, ...]:
    """Return the workload's own numbers, by pass; over several processes their mean."""
    values_of: dict[tuple[str, str, str, str], list[float]] = {}
    better: dict[str, str] = {}
    for entry, result in sorted(results, key=lambda pair: pair[0].get("process", 0)):
        for metric in result.get("metrics") or []:
            key = (entry["pass"], metric.get("phase") or "", metric["name"], metric.get("unit", ""))
            values_of.setdefault(key, []).append(float(metric["value"]))
            if metric.get("better") in ("higher", "lower"):
                better[metric["name"]] = metric["better"]
        for phase, values in (result.get("phase_samples_ns") or {}).items():
            if values:
                key = (entry["pass"], phase, "phase_latency", "ns")
                values_of.setdefault(key, []).append(float(pd.Series(values).median()))
    return tuple(
        RunMetric(
            pass_name=p,
            phase=phase,
            name=name,
            unit=unit,
            value=sum(v) / len(v),
            better=better.get(name),
            process_values=tuple(v),
        )
        for (p, phase, name, unit), v in values_of.items()
    )


def _memory_peaks(clean: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the allocator's counters; 0 is left out: the program ran in a process of its own."""
    peaks: dict[str, int] = {}
    for result in clean:
        for name, value in (result.get("memory") or {}).items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                peaks[name] = max(value, peaks.get(name, value))
    return peaks


def _pass_record(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = (
        *("pass", "process", "status", "outcome", "returncode", "duration_s", "command"),
        *("error", "clocks", "started_at"),
    )
    record = {k: entry[k] for k in kept if entry.get(k) is not None}
    compiled = (entry.get("result") or {}).get("compile")
    return record | ({"compile": compiled} if compiled else {})


def pass_warning(pass_name: str, code: str, message: str) -> PassWarning:
    return PassWarning(pass_name=pass_name, warning=CaptureWarning(code=code, message=message))


def _manifest_warnings(manifest: Mapping[str, Any]) -> tuple[PassWarning, ...]:
    warnings = [("", w) for w in manifest.get("warnings") or []]
    for entry in manifest["passes"]:
        own = (entry.get("result") or {}).get("warnings") or []
        warnings += [(entry["pass"], w) for w in [*(entry.get("warnings") or []), *own]]
    made = (pass_warning(p, w["code"], w["message"]) for p, w in warnings)
    return tuple(dict.fromkeys(made))


def capture_warnings(captures: Sequence[RunCapture]) -> tuple[PassWarning, ...]:
    warnings = [
        PassWarning(pass_name=c.pass_name, warning=w) for c in captures for w in c.tables.warnings
    ]
    return tuple(dict.fromkeys(warnings))
