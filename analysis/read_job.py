"""Read runs from foreign files and assemble them: what `captures.sandbox` starts in its child.

The request: `jobs`, each with the `paths` of one run and their `hashes`, or the `stored` captures
of one, and whether it `copies_first`, `rules` and `peaks` to assemble with, and the `salt` of
hashed UUIDs. The answer of job N is the folder `N`: `run.json` with its files, or `error.json`.

What one run may add to the database is limited: its rows and names stay there for good. Real
captures stay far below: a training step has some hundred kernels, an autotuner's log a few
thousand. A file made to fill the disk has millions of names, each another.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.assemble import assemble
from analysis.bundle import load_bundle, load_paths, run_of_captures
from analysis.capture_file import Staging, read_capture
from analysis.classify import load_user_rules
from analysis.jobs import do_each
from analysis.rundata import AssembledRun, RunCapture, RunData
from analysis.tables import RECORDS, CaptureKind
from analysis.transfer import write_run
from captures.manifest import MANIFEST
from core.errors import CaptureError
from core.gpus import imported_gpu, is_one_gpu, peak_values

MAX_ROWS = 500_000
"""Of one table of a capture."""
MAX_SAMPLES = 2_000_000
"""Of a run; a manifest of the largest size holds half as many."""
MAX_NAMES = 50_000
"""Different kernels, ranges, calls or metrics of one capture."""
MAX_TEXT_BYTES = 128 << 20
"""All texts of one capture's tables."""
MAX_FACTS = 2_000
"""Entries of a run's environment, GPU facts, passes and own metrics."""
_NAMES = ("name", "path", "metric", "kernel", "message")
_REMEDY = "Record a shorter capture, or fewer steps"


def check_rows(run: RunData) -> None:
    """Raise CaptureError for a run that would fill the database."""
    for capture in run.captures:
        _check_capture(capture)
    whole = run.captures[0].file_name if run.captures else "manifest.json"
    _at_most(whole, len(run.samples), MAX_SAMPLES, "samples")
    again = run.samples.duplicated(["pass", "process", "iteration"])
    if again.any():
        row = run.samples[again].iloc[0]
        numbers = f"process {row['process']:.0f}, iteration {row['iteration']:.0f}"
        where = f"the sample of pass {row['pass']}, {numbers}"
        raise CaptureError(whole, f"{where} is there twice", "Give each process its own number")
    facts: tuple[tuple[str, Mapping[str, Any] | Sequence[Any]], ...] = (
        ("facts of its surroundings", run.environment),
        ("facts of its GPU", run.gpu),
        ("metrics", run.metrics),
        ("passes", run.passes),
        ("warnings", run.warnings),
        ("captures", run.captures),
    )
    for what, entries in facts:
        _at_most(whole, len(entries), MAX_FACTS, what)


def _check_capture(capture: RunCapture) -> None:
    num_bytes = 0
    for table, frame in _stored_tables(capture):
        _at_most(capture.file_name, len(frame), MAX_ROWS, f"rows of {table}")
        dtypes = zip(frame.columns, frame.dtypes.tolist(), strict=True)
        for column in (name for name, dtype in dtypes if len(frame) and _holds_texts(dtype)):
            texts = (value for value in frame[column].tolist() if isinstance(value, str))
            num_bytes += sum(map(len, texts))
            if column in _NAMES and len(frame) > MAX_NAMES:
                num_names = frame[column].nunique()
                what = f"different names in {table}, column {column}"
                _at_most(capture.file_name, num_names, MAX_NAMES, what)
    _at_most(capture.file_name, num_bytes, MAX_TEXT_BYTES, "bytes of names and texts")
    for what in ("summary", "memory", "environment", "gpu", "step_facts"):
        entries = getattr(capture.tables, what)
        _at_most(capture.file_name, len(entries), MAX_FACTS, f"entries of {what}")
        num_bytes = len(json.dumps(dict(entries), default=str))
        _at_most(capture.file_name, num_bytes, MAX_TEXT_BYTES, f"bytes of {what}")


def _stored_tables(capture: RunCapture) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in (f.name for f in fields(capture.tables)):
        table = getattr(capture.tables, name)
        if name not in RECORDS and isinstance(table, pd.DataFrame):
            yield name, table


def _holds_texts(dtype: Any) -> bool:
    is_object = getattr(dtype, "kind", "") == "O"
    return is_object or isinstance(dtype, pd.StringDtype | pd.CategoricalDtype)


def _at_most(file_name: str, count: int, limit: int, what: str) -> None:
    if count > limit:
        where = f"it gives {count} {what}, more than the {limit} kept of one"
        raise CaptureError(file_name, where, _REMEDY)


def main(request: Mapping[str, Any], scratch: Path) -> None:
    """Answer every job of the request, one after the other."""

    def read(job: Mapping[str, Any], folder: Path) -> None:
        write_run(_read(job, folder, request), folder)

    do_each(request["jobs"], scratch, read)


def _read(job: Mapping[str, Any], folder: Path, request: Mapping[str, Any]) -> AssembledRun:
    salt = bytes.fromhex(request.get("salt") or "")
    staging = Staging(
        folder=folder,
        keep_private=bool(job.get("keep_private")),
        salt=salt,
        copies_first=bool(job.get("copies_first")),
        hashes={
            path: (tuple(map(tuple, seen)), sha256)
            for path, (seen, sha256) in job.get("hashes", {}).items()
        },
    )
    if "stored" in job:
        data = _stored(Path(job["folder"]), job["stored"], staging)
    else:
        data = load_paths([Path(p) for p in job["paths"]], staging)
    model = data.gpu.get("model") or data.gpu.get("name")
    key = job.get("gpu_id") or imported_gpu(data.gpu)
    known = request.get("peaks", {}).get(key, {}) if is_one_gpu(key) else {}
    rules = load_user_rules(Path(request["rules"])) if request.get("rules") else ()
    own = peak_values(data.gpu.get("peaks") or {})
    check_rows(data)
    return assemble(data, user_rules=rules, peaks=own or known, gpu_model=model)


def _stored(folder: Path, rows: list[Mapping[str, Any]], staging: Staging) -> RunData:
    """Read the captures of a run again from where they are kept."""
    if (folder / MANIFEST).is_file():
        return load_bundle(folder, staging)
    captures = []
    for row in rows:
        path = folder / row["file_name"]
        if not path.is_file():
            raise CaptureError(path, "the stored capture is gone", "Import the file again")
        kind = CaptureKind(row["kind"])
        read = read_capture(path, staging, row["file_name"], kind=kind, pass_name=row["pass"])
        captures.append(replace(read, process=int(row["process"])))
    return run_of_captures(captures)
