"""Have foreign files read in a child with limits, and take what it found: no process of the
dashboard reads one itself.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from analysis.jobs import DONE, ERROR
from analysis.rundata import AssembledRun
from analysis.tables import RECORDS
from analysis.transfer import RUN, read_document, read_run, run_of
from captures.contents import check_paths, known_hashes, others_may_swap
from captures.sandbox import limits_for, run_limited
from core.config import DataDir, ReadingSettings
from core.errors import AppError, CaptureError, ToolUnavailableError, UserError
from core.ids import new_id

LOG = logging.getLogger("warpboard.reading")
_WHOLE_MODULE, _RECORDS_MODULE = "analysis.read_job", "analysis.record_job"
_POLL_S = 0.01
_REMEDY = "The file is damaged, or its reader: report it with the file"


def file_job(paths: Sequence[Path], *, keep_private: bool = False) -> dict[str, Any]:
    """Return the job that reads a bundle folder, or loose files, as one run."""
    check_paths(paths)
    return {
        "paths": [str(p.absolute()) for p in paths],
        "keep_private": keep_private,
        # Here, because the child may not see who owns what: it is alone in its user namespace.
        "copies_first": any(map(others_may_swap, paths)),
        "hashes": known_hashes(paths),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What reading the files of a run gives, known beforehand."""

    content_hash: str
    records: Sequence[Mapping[str, Any]]
    "What `analysis.record_job` is asked for (`asked_records`)."
    text: bytes
    "The document of `run.json`."

    def document(self) -> dict[str, Any]:
        """Return the document; ValueError."""
        document: dict[str, Any] = json.loads(self.text)
        return document


def answered_job(paths: Sequence[Path], answer: Answer) -> dict[str, Any]:
    """Return the job of a run in one folder whose answer is known.

    Only its single operations are read, and the run takes the files from where they lie.
    """
    return {"paths": [str(p.absolute()) for p in paths], "answer": answer}


def asked_records(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the captures of a document of `run.json` that have records, and where they stand."""
    return [
        {
            "file_name": capture["file_name"],
            "kind": capture["tables"]["kind"],
            "shift": capture["shift"],
            "files": files,
        }
        for capture in document["captures"]
        if (files := _record_files(capture["tables"]))
    ]


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
    num_children: int = 1,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Iterator[AssembledRun | AppError]]:
    """Give the run, or the error, of each job; their files are gone afterwards unless moved.

    So many children read them; when one dies, what is missing is read in a child for each. A job
    with an answer is given as soon as its records are there, others when their child has ended.
    """
    uploads, surroundings = data_dir.ensure().uploads, _surroundings(data_dir, db)
    settings: dict[str, Any] = {"num_children": num_children, "is_cancelled": is_cancelled}
    with read_jobs(jobs, surroundings, uploads, **settings) as runs:
        yield runs


@contextmanager
def read_jobs(
    jobs: Sequence[Mapping[str, Any]],
    surroundings: Mapping[str, Any],
    place: Path,
    *,
    settings: ReadingSettings | None = None,
    num_children: int = 1,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Iterator[AssembledRun | AppError]]:
    """Do what `read_runs` does, by given rules and peaks, in a scratch folder below `place`."""
    folder = place / new_id("i")
    folder.mkdir()
    is_over = Event()
    runner = _Runner(surroundings, settings, lambda: is_over.is_set() or is_cancelled())
    try:
        with (
            ThreadPoolExecutor(2 * num_children) as pool,
            closing(_read_all(jobs, runner, folder, num_children, pool)) as runs,
        ):
            try:
                yield runs
            finally:
                is_over.set()  # a child that nobody waits for any more is ended
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
        _Runner(surroundings, None, lambda: False).run(_WHOLE_MODULE, jobs, folder / "all")
        yield [_document(folder / "all" / str(number)) for number in range(len(jobs))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _document(folder: Path) -> dict[str, Any]:
    if (folder / ERROR).exists():
        raise _error(read_document(folder / ERROR))
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

    def run(self, module: str, jobs: Sequence[Mapping[str, Any]], scratch: Path) -> None:
        scratch.mkdir()
        paths = [Path(p) for job in jobs for p in job["paths"]]
        run_limited(
            module,
            {**self.surroundings, "jobs": list(jobs)},
            scratch,
            limits_for(paths, self.settings),
            subject=_subject(jobs[0]),
            is_cancelled=self.is_cancelled,
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a child writes the answer of a job."""

    folder: Path
    child: "Future[None]"

    def written(self, *, at_once: bool) -> Path | None:
        """Wait for the answer, or until its child has ended; None where it never came."""
        while not (self.child.done() or (at_once and self._is_there())):
            wait([self.child], timeout=_POLL_S if at_once else None)
        return self.folder if self._is_there() else None

    def _is_there(self) -> bool:
        return (self.folder / DONE).exists()

    def death(self) -> CaptureError | None:
        """Return why the child, which has ended, gave no answer."""
        try:
            self.child.result()
        except CaptureError as exc:
            return exc
        return None


def _read_all(
    jobs: Sequence[Mapping[str, Any]],
    runner: _Runner,
    folder: Path,
    num_children: int,
    pool: ThreadPoolExecutor,
) -> Generator[AssembledRun | AppError, None, None]:
    places = _places(jobs, runner, folder, num_children, pool)
    for number, job in enumerate(jobs):
        place = places.get(number)
        alone = partial(_read_alone, job, runner, folder / f"alone-{number}")
        if "answer" in job:
            records = place.written(at_once=True) if place else None
            yield _answered(job, records) or alone()
            continue
        assert place is not None
        written = place.written(at_once=False)
        if written is not None:
            yield taken(job, written)
        elif (died := place.death()) is not None and len(jobs) > 1:
            yield alone()
        else:
            yield died or CaptureError(_subject(job), "it was not read", _REMEDY)


def _places(
    jobs: Sequence[Mapping[str, Any]],
    runner: _Runner,
    folder: Path,
    num_children: int,
    pool: ThreadPoolExecutor,
) -> dict[int, _Place]:
    """Start the children and return where the answers will be, by the numbers of their jobs.

    Neighbours go to different children: runs are stored in order while later ones are read.
    """
    requests = [_request(job) for job in jobs]
    asked = [number for number, request in enumerate(requests) if request is not None]
    places: dict[int, _Place] = {}
    for module in (_RECORDS_MODULE, _WHOLE_MODULE):
        mine = [n for n in asked if ("answer" in jobs[n]) == (module == _RECORDS_MODULE)]
        for first in range(min(num_children, len(mine))):
            share = mine[first::num_children]
            scratch = folder / f"{module}-{first}"
            child = pool.submit(runner.run, module, [requests[n] or {} for n in share], scratch)
            places |= {n: _Place(scratch / str(k), child) for k, n in enumerate(share)}
    return places


def _request(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a child is asked for; None where all is known."""
    if "answer" not in job:
        return dict(job)
    folder = _folder(job)
    records = [
        {**capture, "path": str(folder / capture["file_name"])} for capture in job["answer"].records
    ]
    return {"paths": job["paths"], "records": records} if records else None


def _folder(job: Mapping[str, Any]) -> Path:
    """Return where the files of an answered job lie."""
    first = Path(job["paths"][0])
    return first if first.is_dir() else first.parent


def _record_files(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return the file of a capture's spans, ranges and host's rows, of those that it has."""
    return {what: tables[what]["parquet"] for what in RECORDS if tables[what] is not None}


def _answered(job: Mapping[str, Any], place: Path | None) -> AssembledRun | None:
    """Return the run of a known answer; None where its files cannot be told, or do not fit."""
    answer, folder = job["answer"], _folder(job)
    try:
        for capture in answer.records:
            for name in capture["files"].values():
                os.replace((place or folder) / name, folder / name)
        return run_of(answer.document(), folder)
    except (OSError, ValueError, KeyError, TypeError) as exc:
        LOG.warning("%s: the answer made beforehand is not used (%r)", _subject(job), exc)
        return None


def _read_alone(job: Mapping[str, Any], runner: _Runner, scratch: Path) -> AssembledRun | AppError:
    """Read one run in a child of its own, whatever is known of it."""
    whole = file_job([Path(p) for p in job["paths"]]) if "answer" in job else dict(job)
    try:
        runner.run(_WHOLE_MODULE, [whole], scratch)
    except CaptureError as exc:
        return exc
    return taken(whole, scratch / "0")


def _subject(job: Mapping[str, Any]) -> Path:
    return Path(job["paths"][0]) if job["paths"] else Path("capture")


def taken(job: Mapping[str, Any], folder: Path) -> AssembledRun | AppError:
    try:
        if (folder / ERROR).exists():
            return _error(read_document(folder / ERROR))
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
