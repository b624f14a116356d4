"""Have foreign files read in a child with limits, and take what it found: no process of the
dashboard reads one itself.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analysis.rundata import AssembledRun
from analysis.tables import RECORDS
from analysis.transfer import RUN, read_document, read_run, run_of
from captures.contents import check_paths, others_may_swap
from captures.sandbox import limits_for, run_limited
from core.config import DataDir, ReadingSettings
from core.errors import AppError, CaptureError, ToolUnavailableError, UserError
from core.ids import new_id

LOG = logging.getLogger("warpboard.reading")
_JOB_MODULE = "analysis.read_job"
_ERROR, _DONE = "error.json", "done"
_REMEDY = "The file is damaged, or its reader: report it with the file"


def file_job(paths: Sequence[Path], *, keep_private: bool = False) -> dict[str, Any]:
    """Return the job that reads a bundle folder, or loose files, as one run."""
    check_paths(paths)
    return {
        "paths": [str(p.absolute()) for p in paths],
        "keep_private": keep_private,
        # Here, because the child may not see who owns what: it is alone in its user namespace.
        "copies_first": any(map(others_may_swap, paths)),
    }


def answered_job(paths: Sequence[Path], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job of a run in one folder whose answer is known: the document of `run.json`.

    Only its single operations are read, and the run takes the files from where they lie.
    """
    return {**file_job(paths), "answer": answer}


def stored_job(
    folder: Path, rows: Sequence[Mapping[str, Any]], gpu_id: str | None
) -> dict[str, Any]:
    """Return the job that reads stored captures again.

    `rows`: file_name, kind, pass and process of each.
    """
    stored = [dict(row) for row in rows]
    names = [str(folder / row["file_name"]) for row in stored]
    return {
        "paths": names,
        "folder": str(folder),
        "stored": stored,
        "keep_private": True,
        "gpu_id": gpu_id,
    }


@contextmanager
def read_runs(
    data_dir: DataDir,
    db: Any,
    jobs: Sequence[Mapping[str, Any]],
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[list[AssembledRun | AppError]]:
    """Give the run, or the error, of each job; their files are gone afterwards unless moved.

    All are read in one child; when it dies, what is missing is read in a child for each.
    """
    uploads = data_dir.ensure().uploads
    with read_jobs(jobs, _surroundings(data_dir, db), uploads, is_cancelled=is_cancelled) as runs:
        yield runs


@contextmanager
def read_jobs(
    jobs: Sequence[Mapping[str, Any]],
    surroundings: Mapping[str, Any],
    place: Path,
    *,
    settings: ReadingSettings | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[list[AssembledRun | AppError]]:
    """Do what `read_runs` does, by given rules and peaks, in a scratch folder below `place`."""
    folder = place / new_id("i")
    folder.mkdir()
    runner = _Runner(surroundings, settings, is_cancelled)
    try:
        yield _read_all(jobs, runner, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def read_documents(
    jobs: Sequence[Mapping[str, Any]], surroundings: Mapping[str, Any], place: Path
) -> Iterator[list[dict[str, Any]]]:
    """Give what the child wrote of each job, as it stands in `run.json`; an error is raised."""
    folder = place / new_id("i")
    folder.mkdir()
    try:
        _Runner(surroundings, None, lambda: False).run(jobs, folder / "all")
        yield [_document(folder / "all" / str(number)) for number in range(len(jobs))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _document(folder: Path) -> dict[str, Any]:
    if (folder / _ERROR).exists():
        raise _error(read_document(folder / _ERROR))
    return read_document(folder / RUN)


@contextmanager
def read_one(
    data_dir: DataDir,
    db: Any,
    job: Mapping[str, Any],
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[AssembledRun]:
    """Give the run of one job; its error is raised."""
    with read_runs(data_dir, db, [job], is_cancelled=is_cancelled) as (run,):
        if isinstance(run, AppError):
            raise run
        yield run


def _surroundings(data_dir: DataDir, db: Any) -> dict[str, Any]:
    """Return the present rules and measured peaks, by which runs are assembled, and the salt."""
    from captures.identity import device_salt
    from db.devices import peaks_of_all

    rules = data_dir.rules_path
    return {
        "rules": str(rules) if rules.exists() else None,
        "peaks": peaks_of_all(db),
        "salt": device_salt(data_dir.root).hex(),
    }


@dataclass(frozen=True, slots=True)
class _Runner:
    """Reads jobs in a child, all by the same rules and limits."""

    surroundings: Mapping[str, Any]
    settings: ReadingSettings | None
    is_cancelled: Callable[[], bool]

    def run(self, jobs: Sequence[Mapping[str, Any]], scratch: Path) -> None:
        scratch.mkdir()
        paths = [Path(p) for job in jobs for p in job["paths"]]
        run_limited(
            _JOB_MODULE,
            {**self.surroundings, "jobs": list(jobs)},
            scratch,
            limits_for(paths, self.settings),
            subject=_subject(jobs[0]),
            is_cancelled=self.is_cancelled,
        )


def _read_all(
    jobs: Sequence[Mapping[str, Any]], runner: _Runner, folder: Path
) -> list[AssembledRun | AppError]:
    requests = [_request(job) for job in jobs]
    sent = [request for request in requests if request is not None]
    died = None
    try:
        if sent:
            runner.run(sent, folder / "all")
    except CaptureError as exc:
        died = exc
    places = iter(folder / "all" / str(number) for number in range(len(sent)))
    runs: list[AssembledRun | AppError] = []
    for number, (job, request) in enumerate(zip(jobs, requests, strict=True)):
        place = None if request is None else next(places)
        alone = partial(_read_alone, job, runner, folder / f"alone-{number}")
        if "answer" in job:
            runs.append(_answered(job, place) or alone())
        elif place is not None and (place / _DONE).exists():
            runs.append(_taken(job, place))
        elif died is not None and len(jobs) > 1:
            runs.append(alone())
        else:
            runs.append(died or CaptureError(_subject(job), "it was not read", _REMEDY))
    return runs


def _request(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a child is asked for; None where all is known."""
    if "answer" not in job:
        return dict(job)
    captures = [
        {
            "path": str(_folder(job) / capture["file_name"]),
            "kind": capture["tables"]["kind"],
            "pass": capture["pass_name"],
            "files": files,
            **{name: capture[name] for name in ("file_name", "process", "rank")},
        }
        for capture in job["answer"]["captures"]
        if (files := _record_files(capture["tables"]))
    ]
    return {"paths": job["paths"], "records": captures} if captures else None


def _folder(job: Mapping[str, Any]) -> Path:
    """Return where the files of an answered job lie."""
    first = Path(job["paths"][0])
    return first if first.is_dir() else first.parent


def _record_files(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return the file of a capture's spans, ranges and host's rows, of those that it has."""
    return {what: tables[what]["parquet"] for what in RECORDS if tables[what] is not None}


def _answered(job: Mapping[str, Any], place: Path | None) -> AssembledRun | None:
    """Return the run of a known answer; None where its files cannot be told, or do not fit."""
    try:
        if place is not None:
            for capture in job["answer"]["captures"]:
                for name in _record_files(capture["tables"]).values():
                    os.replace(place / name, _folder(job) / name)
        return run_of(job["answer"], _folder(job))
    except (OSError, ValueError, KeyError, TypeError) as exc:
        LOG.warning("%s: the answer made beforehand is not used (%r)", _subject(job), exc)
        return None


def _read_alone(job: Mapping[str, Any], runner: _Runner, scratch: Path) -> AssembledRun | AppError:
    """Read one run in a child of its own, whatever is known of it."""
    job = {name: value for name, value in job.items() if name != "answer"}
    try:
        runner.run([job], scratch)
    except CaptureError as exc:
        return exc
    return _taken(job, scratch / "0")


def _subject(job: Mapping[str, Any]) -> Path:
    return Path(job["paths"][0]) if job["paths"] else Path("capture")


def _taken(job: Mapping[str, Any], folder: Path) -> AssembledRun | AppError:
    try:
        if (folder / _ERROR).exists():
            return _error(read_document(folder / _ERROR))
        return read_run(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        return CaptureError(_subject(job), f"its reader gave no sound answer ({exc})", _REMEDY)


def _error(document: Mapping[str, Any]) -> AppError:
    given = {name: str(value) for name, value in document.items()}
    if given["kind"] == "CaptureError":
        return CaptureError(given["path"], given["where"], given["remedy"])
    if given["kind"] == "ToolUnavailableError":
        return ToolUnavailableError(given["tool"], given["why"], given["remedy"])
    return UserError(given["message"])
