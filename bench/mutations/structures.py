"""Files that are well formed and mean harm: every format changed at its structure, read in a child.

Where `bench.mutations.kinds` damages bytes, here the document is taken apart and put together again
(`bench.mutations.structure_kinds`), and a manifest with changes stands beside some captures.
"""

import json
import random
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from analysis.jobs import UNEXPECTED
from app.reading import file_job, read_jobs
from bench.mutations.structure_kinds import change_tree, changer, write_made
from captures.contents import file_sha256
from captures.manifest import MANIFEST
from core.config import ReadingSettings
from core.errors import AppError
from core.spec import JobSpec

FAILURES = ("traceback", "over a limit", "no sound answer")
BATCH = 40
LIMITS = ReadingSettings(memory_bytes=10**9, memory_per_byte=0, cpu_s=30, cpu_s_per_mb=0)
"""The strictest that the runner knows: those of production grow with the file's size."""


def write_mutants(files: list[Path], count: int, seed: int, folder: Path) -> Iterator[Path]:
    """Write `count` files, or bundle folders, and give the path of each to import."""
    chosen = [(file, change) for file in files if (change := changer(file)) is not None]
    for number in range(count):
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
        yield path


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


def run_structures(
    files: list[Path], count: int, seed: int, keep: Path | None = None
) -> Generator[tuple[str, str, str], None, None]:
    """Read `count` mutants in children under LIMITS; give (file, outcome, message) of each.

    A child reads BATCH of them; where it goes beyond a limit, each is read again alone. Those that
    fail are copied to `keep`, as SEED-NUMBER.
    """
    with tempfile.TemporaryDirectory() as place:
        mutants = write_mutants([*files, *write_made(Path(place))], count, seed, Path(place))
        surroundings: dict[str, Any] = {"rules": None, "peaks": {}}
        while batch := [path for _, path in zip(range(BATCH), mutants, strict=False)]:
            jobs = [file_job([path]) for path in batch]
            with read_jobs(jobs, surroundings, Path(place), settings=LIMITS) as answers:
                for path, answer in zip(batch, answers, strict=True):
                    outcome = _outcome(answer) if isinstance(answer, AppError) else "read"
                    if keep is not None and outcome in FAILURES:
                        _keep(path, keep, seed)
                    yield path.name, outcome, str(answer) if outcome != "read" else ""
            for path in batch:
                shutil.rmtree(path if path.is_dir() else path.parent)


def _keep(path: Path, folder: Path, seed: int) -> None:
    whole = path if path.is_dir() else path.parent
    shutil.copytree(whole, folder / f"{seed}-{whole.name}", dirs_exist_ok=True)


def _outcome(error: AppError) -> str:
    text = str(error)
    if UNEXPECTED in text:
        return "traceback"
    if "it was stopped" in text or "its reader crashed" in text:
        return "over a limit"
    return "no sound answer" if "no sound answer" in text else "error"
