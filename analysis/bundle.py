"""Turn a bundle folder, or the loose files of one run, into `RunData`.

The files are not changed. A copy without private fields is made, and the copy is what is read, so
that the stored capture gives the stored numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.capture_file import Staging, keep_capture, read_capture
from analysis.manifest_run import (
    capture_samples,
    capture_warnings,
    environment_of,
    from_manifest,
    gpu_of,
    pass_warning,
)
from analysis.rundata import PassWarning, RunCapture, RunData
from analysis.side_by_side import num_at_once, results_of
from analysis.tables import CaptureKind, CaptureWarning
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
from core.trace_rules import MEASURED_RANGE, is_iteration, path_part

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
    results = results_of(tasks, num_at_once(paths))
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


def _left_out(reasons: Mapping[str, str]) -> list[PassWarning]:
    """Return a warning that names the files that are in no number; [] without any."""
    if not reasons:
        return []
    shown = [f"{name}: {why}" for name, why in list(reasons.items())[:MAX_SHOWN]]
    more = f"; and {len(reasons) - MAX_SHOWN} more" if len(reasons) > MAX_SHOWN else ""
    message = f"not read, and in no number: {'; '.join(shown)}{more}"
    warning = CaptureWarning(code="files_left_out", message=message)
    return [PassWarning(pass_name="", warning=warning)]


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
    results = results_of(tasks, num_at_once([path for path, _, _ in given]))
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
