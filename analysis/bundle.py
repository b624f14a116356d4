"""Turn a bundle folder, or the loose files of one run, into `RunData`.

A bundle's manifest is checked before its captures are read. The files are not changed. A copy
without private fields is made, and the copy is what is read, so that the stored capture gives the
stored numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.capture_file import Staging, keep_capture, read_capture
from analysis.rundata import (
    RUN_SAMPLE_COLUMNS,
    PassWarning,
    RunCapture,
    RunData,
    RunMetric,
    pass_warning,
)
from analysis.side_by_side import num_at_once, results_of
from analysis.tables import CaptureKind
from captures.contents import (
    check_paths,
    checked_file,
    differs,
    hash_of,
    hash_of_captures,
    unique_name,
)
from captures.manifest import MANIFEST, load_manifest
from captures.private import PrivateWords
from captures.scrub.manifest import clean_manifest
from core.errors import AppError, CaptureError, UserError
from core.plain_text import some_of
from core.spec import JobSpec
from core.states import Pass
from core.trace_rules import MEASURED_RANGE, is_iteration, path_part

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
            labels = (metric.get("phase") or "", metric["name"], metric.get("unit") or "")
            key = (entry["pass"], *labels)
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


NOT_CAPTURES = frozenset({"log", "text", "json", "result"})
"""Kinds in a manifest that are kept but not read: they hold no measurements of their own."""


MAX_RANKS = 1 << 20
MAX_SHOWN = 8
CAPTURE_NAMES = (
    *(".json", ".json.gz", ".sqlite", ".nsys-rep", ".qdrep", ".ncu-rep"),
    *(".csv", ".pickle", ".trace.gz"),
)
MAX_FILES = 2048
"""Files of a folder that are looked at: one for each rank of a large job, and some beside them."""


def load_paths(paths: Sequence[Path], staging: Staging) -> RunData:
    """Read one bundle folder, or files that make one run together; UserError, CaptureError."""
    check_paths(paths)
    folders = [p for p in paths if p.is_dir()]
    if folders and len(paths) > 1:
        raise UserError(f"{folders[0]}: a bundle folder is a run of its own; import it alone")
    if folders:
        if (folders[0] / MANIFEST).is_file():
            return load_bundle(folders[0], staging)
        loose, others = captures_inside(folders[0])
        return load_files(loose, staging, others) if loose else load_bundle(folders[0], staging)
    if len(paths) == 1 and paths[0].name == MANIFEST:
        return load_bundle(paths[0].parent, staging)
    return load_files(paths, staging)


def captures_inside(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Return the captures in a folder, by name: those of a job's ranks make one run.

    By content; of other files whose name is that of a capture, why they are none. CaptureError for
    more than MAX_FILES files.
    """
    from analysis.readers import detect

    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    if len(files) > MAX_FILES:
        remedy = "Give the captures of one run by name"
        raise CaptureError(folder, f"it holds {len(files)} files, more than {MAX_FILES}", remedy)
    captures: list[Path] = []
    others: dict[str, str] = {}
    for path in files:
        try:
            detect(path)
            captures.append(path)
        except CaptureError as error:
            if path.name.endswith(CAPTURE_NAMES):
                others[path.name] = error.where
        except AppError:
            continue
    return captures, others


def load_files(
    paths: Sequence[Path], staging: Staging, others: Mapping[str, str] | None = None
) -> RunData:
    """Read loose files as one run. Its hash depends on their contents, not on names or order.

    `others`: files beside them that are not read, and why.
    """
    names: list[str] = []
    for path in paths:
        names.append(unique_name(path.name, set(names)))
    captures: list[RunCapture] = []
    left_out = dict(others or {})
    counts: dict[str, int] = {}
    seen: set[str] = set()
    tasks = [
        partial(read_capture, path, staging, name, kind=None, pass_name=None)
        for path, name in zip(paths, names, strict=True)
    ]
    results = _side_by_side(tasks, paths)
    for path, capture in zip(paths, results, strict=True):
        if isinstance(capture, AppError):
            raise capture
        if capture.source_sha256 in seen:
            left_out[path.name] = "the same contents as another file"
            continue
        seen.add(capture.source_sha256)
        process = counts.get(capture.pass_name, 0)
        counts[capture.pass_name] = process + 1
        captures.append(replace(capture, process=process))
    captures.sort(key=lambda c: (c.pass_name, c.source_sha256))
    run = run_of_captures(captures)
    return replace(run, warnings=(*run.warnings, *_left_out(left_out)))


def _side_by_side(
    tasks: Sequence[Callable[[], RunCapture]], paths: Sequence[Path]
) -> list[RunCapture | AppError]:
    """Read captures, large ones in processes that begin with all that was imported."""
    from analysis.readers import prepare_timelines

    at_once = num_at_once(paths)
    if at_once > 1:
        prepare_timelines()
    return results_of(tasks, at_once)


def _left_out(reasons: Mapping[str, str]) -> list[PassWarning]:
    """Return a warning that names the files that are in no number; [] without any."""
    if not reasons:
        return []
    shown = some_of([f"{name}: {why}" for name, why in reasons.items()], MAX_SHOWN, "; ", "; and ")
    message = f"not read, and in no number: {shown}"
    return [pass_warning("", "files_left_out", message)]


def run_of_captures(captures: Sequence[RunCapture]) -> RunData:
    """Return what captures alone say, without a manifest."""
    return RunData(
        status="done",
        captures=tuple(captures),
        samples=capture_samples(captures),
        gpu=gpu_of(captures),
        environment=environment_of(captures, {}),
        warnings=capture_warnings(captures),
        content_hash=hash_of_captures({c.source_sha256 for c in captures}),
    )


def load_bundle(folder: Path, staging: Staging) -> RunData:
    """Read a bundle: check the manifest, then each capture's hash, then read the captures."""
    if not (folder / MANIFEST).is_file():
        remedy = "Give a folder that `warpboard run --out` left, or the capture files themselves"
        raise CaptureError(folder, f"the folder has no {MANIFEST}", remedy)
    manifest = load_manifest(folder)
    captures: list[RunCapture] = []
    broken: list[PassWarning] = []
    given = [
        (checked_file(folder, item), entry, item)
        for entry in manifest["passes"]
        for item in entry["captures"]
    ]
    given = [(path, entry, item) for path, entry, item in given if item["kind"] not in NOT_CAPTURES]
    tasks = [partial(_bundle_capture, path, staging, entry, item) for path, entry, item in given]
    results = _side_by_side(tasks, [path for path, _, _ in given])
    for (_, entry, _), result in zip(given, results, strict=True):
        if isinstance(result, CaptureError):
            broken.append(pass_warning(entry["pass"], "capture_unreadable", str(result)))
        elif isinstance(result, AppError):
            raise result
        else:
            captures.append(result)
    if kept := _wanted_ranges(manifest["job"]):
        captures = [_with_ranges(capture, kept, broken) for capture in captures]
    content_hash = hash_of(manifest)  # of what was given, before anything is removed
    if not staging.keep_private:
        manifest = clean_manifest(manifest, PrivateWords(salt=staging.salt))
    data = from_manifest(manifest, tuple(captures), tuple(broken))
    return replace(data, content_hash=content_hash)


def _is_beside_its_export(entry: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Say whether this is a tool's own report, kept for its viewer beside what was read from it."""
    kinds = {capture["kind"] for capture in entry["captures"]}
    exports = {"nsys_rep": "nsys_sqlite", "ncu_rep": "ncu_csv"}
    return exports.get(item["kind"]) in kinds


def _wanted_ranges(job: Mapping[str, Any]) -> list[str]:
    """Return the names in `ranges` of the workload `command`; [] keeps all."""
    wanted = (job.get("params") or {}).get("ranges") if job["workload"] == "command" else None
    return [path_part(name.strip()) for name in str(wanted or "").split(",") if name.strip()]


def _with_ranges(
    capture: RunCapture, names: Sequence[str], warnings: list[PassWarning]
) -> RunCapture:
    """Keep the named ranges, what lies inside them, and the iterations; say which was not met.

    Kernels outside the ranges stay in the run's sums: the program ran them.
    """
    phases = capture.tables.phases
    if phases is None or phases.empty:
        return capture
    paths = phases["path"].astype(str)
    parts = paths.str.split("/")
    met = {part for path in parts for part in path}
    for name in (n for n in names if n not in met):
        message = f"no range is called {name!r}; ranges of the capture: {_some(met)}"
        warnings.append(pass_warning(capture.pass_name, "range_not_met", message))
    inside = parts.map(lambda path: any(name in path for name in names))
    is_ours = parts.map(_is_of_the_workload)
    tables = replace(capture.tables, phases=phases[inside | is_ours].reset_index(drop=True))
    return replace(capture, tables=tables)


def _is_of_the_workload(parts: Sequence[str]) -> bool:
    """Say whether a path is one that the workload itself opens around the program's ranges."""
    measured, *rest = parts
    return measured == MEASURED_RANGE and (
        not rest or (is_iteration(rest[0]) and rest[1:] in ([], ["program"]))
    )


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:MAX_SHOWN]) + (", ..." if len(shown) > MAX_SHOWN else "")


def _bundle_capture(
    path: Path,
    staging: Staging,
    entry: Mapping[str, Any],
    item: Mapping[str, Any],
) -> RunCapture:
    kind = CaptureKind(item["kind"]) if item["kind"] in set(CaptureKind) else None
    if kind is None or not _is_beside_its_export(entry, item):
        capture = read_capture(path, staging, item["file"], kind=kind, pass_name=entry["pass"])
    else:
        capture = keep_capture(path, staging, item["file"], kind, entry["pass"])
    if capture.source_sha256 != item["sha256"]:  # changed since, or with a log that none lists
        raise differs(path)
    removed = dict.fromkeys([*(item.get("private_removed") or ()), *capture.private_removed])
    rank = item.get("rank")
    return replace(
        capture,
        process=entry.get("process", 0),
        private_removed=tuple(removed),
        rank=rank if type(rank) is int and 0 <= rank < MAX_RANKS else None,
    )
