"""Files that are well formed and mean harm: every format changed at its structure, read in a child.

Where `bench.mutations.kinds` damages bytes, here the document is taken apart and put together again
(`bench.mutations.structure_kinds`), and a manifest with changes stands beside some captures.
`run_jobs` shares the reading among processes and adds up what they found.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from analysis.jobs import DONE, UNEXPECTED
from app.reading import file_job, taken
from bench.mutations.measured import USAGE
from bench.mutations.structure_kinds import change_tree, changer, write_made
from captures.contents import file_sha256
from captures.manifest import MANIFEST
from captures.sandbox import Limits, run_limited
from core.config import ROOT
from core.errors import AppError, CaptureError
from core.spec import JobSpec

FAILURES = ("traceback", "over a limit", "no sound answer")
BATCH = 40
LIMITS = Limits(memory_bytes=10**9, cpu_s=30, wall_s=180, disk_bytes=4 << 30)
"""Of each mutant's process; those of production grow with the file's size."""


def write_mutants(
    files: list[Path], numbers: range, seed: int, folder: Path
) -> Iterator[tuple[int, Path]]:
    """Write files, or bundle folders; give the number of each and its path to import."""
    chosen = [(file, change) for file in files if (change := changer(file)) is not None]
    for number in numbers:
        rng = random.Random(seed * 1_000_003 + number)
        file, change = chosen[number % len(chosen)]
        if file.suffix == ".ncu-rep" and rng.random() < 0.8:
            file, change = chosen[0]  # each takes a process of its own
        place = folder / f"{number}"
        place.mkdir()
        path = place / file.name
        path.write_bytes(change(file.read_bytes(), rng))
        if rng.random() < 0.15:
            _make_bundle(path, rng)
            path = place
        yield number, path


def _make_bundle(path: Path, rng: random.Random) -> None:
    """Put a manifest with changes beside a capture."""
    capture = {"file": path.name, "kind": "log", "sha256": file_sha256(path)}
    capture["kind"] = rng.choice(("nsys_sqlite", "torch_trace", "memory_snapshot", "ncu_csv"))
    entry = {
        "pass": rng.choice(("clean", "nsys", "trace", "memory")),
        "process": 0,
        "status": "ok",
        "captures": [{**capture, "bytes": path.stat().st_size}],
        "result": {"samples_ns": [1000, 2000], "metrics": [{"name": "x", "value": 1}]},
    }
    document = {
        "schema_version": 1,
        "job": JobSpec(workload="decode", params={}).as_dict(),
        "status": "done",
        "gpu": {"model": "H100", "noise_floors": {"x": 0.1}, "peaks": {}},
        "environment": {"torch": "2.9"},
        "passes": [entry],
    }
    if rng.random() < 0.8:
        document = change_tree(document, rng)
    with suppress(RecursionError):  # nested deeper than this process itself can write
        (path.parent / MANIFEST).write_text(json.dumps(document))


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of one mutant, and what its process used; None where that was stopped."""

    number: int
    name: str
    outcome: str
    message: str = ""
    memory_mb: int | None = None
    "The most that was resident at once."
    cpu_s: float | None = None
    wall_s: float | None = None


def run_structures(
    files: list[Path], numbers: range, seed: int, keep: Path | None = None
) -> Generator[Reading, None, None]:
    """Read the mutants of these numbers in children under LIMITS; give what became of each.

    A child reads BATCH of them, each in a process of its own. Those that fail, and one that is
    alone, are copied to `keep`, as SEED-NUMBER.
    """
    with tempfile.TemporaryDirectory() as place:
        made = write_made(Path(place))
        mutants = write_mutants([*files, *made], numbers, seed, Path(place))
        while batch := list(islice(mutants, BATCH)):
            waiting = batch
            while waiting:
                readings = _read(waiting, Path(place))
                for (number, path), reading in zip(waiting, readings, strict=False):
                    if keep is not None and (reading.outcome in FAILURES or len(numbers) == 1):
                        whole = path if path.is_dir() else path.parent
                        shutil.copytree(whole, keep / f"{seed}-{number}", dirs_exist_ok=True)
                    yield reading
                waiting = waiting[len(readings) :]
            for _, path in batch:
                shutil.rmtree(path if path.is_dir() else path.parent)


def _read(mutants: list[tuple[int, Path]], place: Path) -> list[Reading]:
    """Read mutants in one child until it ends; where it is stopped at the first, that is given."""
    jobs = [file_job([path]) for _, path in mutants]
    request: dict[str, Any] = {"rules": None, "peaks": {}, "jobs": jobs}
    number, first = mutants[0]
    stopped = None
    with tempfile.TemporaryDirectory(dir=place) as name:
        scratch = Path(name)
        try:
            run_limited("bench.mutations.measured", request, scratch, LIMITS, subject=first)
        except CaptureError as exc:
            stopped = Reading(number, first.name, "over a limit", str(exc))
        readings = [
            _reading(number, path.name, job, scratch / str(at))
            for at, ((number, path), job) in enumerate(zip(mutants, jobs, strict=True))
            if (scratch / str(at) / USAGE).is_file()
        ]
    return [stopped] if stopped and not readings else readings


def _reading(number: int, name: str, job: dict[str, Any], folder: Path) -> Reading:
    """Return what became of a mutant whose process has ended."""
    used = json.loads((folder / USAGE).read_text())
    exit_code = used.pop("exit_code")
    is_over = used["memory_mb"] * 10**6 > LIMITS.memory_bytes or used["cpu_s"] > LIMITS.cpu_s
    if is_over or not (folder / "0" / DONE).is_file():
        message = f"its process ended with {exit_code}"
        return Reading(number, name, "over a limit", message, **used)
    answer = taken(job, folder / "0")
    if not isinstance(answer, AppError):
        return Reading(number, name, "read", **used)
    text = str(answer)
    kinds = {UNEXPECTED: "traceback", "no sound answer": "no sound answer"}
    outcome = next((kinds[sign] for sign in kinds if sign in text), "error")
    return Reading(number, name, outcome, text, **used)


MAX_JOBS = 1000
USES = ("memory_mb", "cpu_s", "wall_s")
"""What is measured of the process that reads a mutant."""
MOST, _NUM_MOST = "most", 5
_NO_COUNTS = ("seconds", "cpu_s", MOST)

Used = dict[str, list[tuple[float, str]]]
"""How much of each use, and by which mutant: the highest first."""


def add_used(used: Used, more: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Add what other mutants used, and keep the highest few of each use."""
    for use in USES:
        of_all = [*used.get(use, ()), *((float(value), str(who)) for value, who in more[use])]
        used[use] = sorted(of_all, reverse=True)[:_NUM_MOST]


def seed_of(seed: int, job: int) -> int:
    """Return the seed of a job: no other job of any seed has it."""
    return seed * MAX_JOBS + job


def run_jobs(options: argparse.Namespace) -> int:
    """Run each share in a process of its own; print one line of totals. 1 where a file failed."""
    started = time.monotonic()
    jobs = min(options.jobs, options.count, MAX_JOBS)
    shares = [options.count // jobs + (job < options.count % jobs) for job in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda job: _run(options, job, shares[job]), range(jobs)))
    lines = [line for line in results if line is not None]
    total: Counter[str] = Counter()
    used: Used = {}
    for line in lines:
        total.update({k: int(v) for k, v in line.items() if k not in _NO_COUNTS})
        add_used(used, line[MOST])
    summary: dict[str, Any] = {
        "seed": options.seed,
        "jobs": jobs,
        "jobs_that_died": jobs - len(lines),
        "seconds": round(time.monotonic() - started, 1),
        "cpu_s": round(sum(line["cpu_s"] for line in lines), 1),
        MOST: used,
    }
    print(json.dumps({**summary, **total}))
    return 1 if len(lines) < jobs or any(total[o] for o in FAILURES) else 0


def _run(options: argparse.Namespace, job: int, count: int) -> dict[str, Any] | None:
    """Run one share; its failures go on to this process's own stderr as they come."""
    command = [sys.executable, "-m", "bench.mutations", "--structures", "--count", str(count)]
    command += ["--seed", str(seed_of(options.seed, job)), "--only", options.only]
    command += ["--first", str(options.first)]
    if options.seconds:
        command += ["--seconds", str(options.seconds)]
    if options.keep:
        command += ["--keep", str(options.keep.absolute())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None
