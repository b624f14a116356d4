"""Damage real captures in many seeded ways and read each: `python -m bench.mutations [--count N]`.

Every damaged file must give one CaptureError, the same numbers, or numbers with a warning that the
whole file does not give. Never a traceback, a hang, memory without bound, or other numbers in
silence.

One class cannot be told by any reader: damage that leaves a well-formed file of the same structure,
with another value in one place (a digit in a table, a bit in an integer). No format here has a
checksum over it, save gzip. Such files are shown in a row of their own, `valid other value`: an
independent parse must find the same structure (keys, rows, kinds of records), or the file counts as
a failure.

`--structures` reads well-formed files that mean harm (`bench.mutations.structures`) as an import
does, in a child under the runner's limits: each must be read or refused, within 1 GB and 30 s.
`--jobs N` shares the count among N processes, each with a seed of its own made of the one given;
`--seconds` ends the run early, and says how many were read; `--keep FOLDER` keeps the files that
failed, as SEED-NUMBER. The mutants that used most are named; `--seed S --first N --count 1 --keep
FOLDER` makes mutant N of seed S again, with the same `--only`.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

from bench.mutations.kinds import mutate
from bench.mutations.outcome import Fingerprint, Task, judge, reading_worker
from bench.mutations.structures import FAILURES as STRUCTURE_FAILURES
from bench.mutations.structures import MOST, USES, Used, add_used, run_jobs, run_structures

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "h100"
FAILURES = ("different without warning", "traceback", "hang", "memory")
OUTCOMES = ("error", "same numbers", "different, warned", "valid other value", *FAILURES)
WEIGHTS = {
    "ncu/decode_max_autotune.ncu-rep": 0.02,
    "kineto/train_bf16.json.gz": 1.0,
    "ncu/decode_eager.raw.csv": 0.6,
    "ncu/decode_eager.details.csv.gz": 0.8,
    "memory/train_fp32.pickle": 1.2,
    "memory/train_oom.pickle": 0.8,
}
TIMEOUT_S = 60


def captures(data: Path = DATA) -> list[Path]:
    """Return the real captures that are damaged, in a fixed order."""
    kept = (".sqlite", ".csv", ".gz", ".log", ".pickle", ".ncu-rep")
    return sorted(p for p in data.rglob("*") if p.suffix in kept)


def plan(files: list[Path], count: int, seed: int, data: Path = DATA) -> list[tuple[Path, int]]:
    """Return (file, seed) for each damaged copy to make; heavy files get fewer."""
    weights = [WEIGHTS.get(str(f.relative_to(data)), 1.5) for f in files]
    total = sum(weights)
    shares = [max(1, round(count * w / total)) for w in weights]
    shares[0] += max(0, count - sum(shares))
    first = seed * 1_000_003
    return [
        (file, first + 10_007 * number + i)
        for number, (file, share) in enumerate(zip(files, shares, strict=True))
        for i in range(share)
    ]


def run(
    tasks: list[tuple[Path, int]], folder: Path, num_workers: int = 1
) -> list[tuple[Path, str, str, str]]:
    """Return (file, damage, outcome, message) of each task."""
    wholes: dict[Path, Fingerprint] = {}
    results: list[tuple[Path, str, str, str]] = []
    context = get_context("spawn")
    with reading_worker(context, num_workers, TIMEOUT_S) as read:
        for file, _ in tasks:
            if file not in wholes:
                wholes[file] = read([Task(path=file, whole=None, original=None)])[0]
        batch: list[tuple[Path, str, Task]] = []
        for file, seed in tasks:
            data, damage = mutate(file.read_bytes(), file.name, random.Random(seed))
            copy = folder / f"{seed}-{len(results) + len(batch)}{file.suffix}"
            copy.write_bytes(data)
            batch.append((file, damage, Task(path=copy, whole=wholes[file], original=file)))
            if len(batch) == 16 * num_workers:
                results += _finish(batch, read)
                batch = []
        results += _finish(batch, read)
    return results


def _finish(
    batch: list[tuple[Path, str, Task]], read: Callable[[list[Task]], list[Fingerprint]]
) -> list[tuple[Path, str, str, str]]:
    outcomes = read([task for _, _, task in batch])
    rows = [
        (file, damage, *judge(outcome))
        for (file, damage, _), outcome in zip(batch, outcomes, strict=True)
    ]
    for _, _, task in batch:
        task.path.unlink(missing_ok=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the file names to damage")
    parser.add_argument(
        "--structures", action="store_true", help="well-formed files that mean harm instead"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes, with --structures")
    parser.add_argument("--seconds", type=float, help="no more after this time, with --structures")
    parser.add_argument("--first", type=int, default=0, help="number of the first, --structures")
    parser.add_argument("--keep", type=Path, help="folder for files that fail, with --structures")
    options = parser.parse_args()
    everything = captures(DATA.parent) if options.structures else captures()
    files = [f for f in everything if options.only in str(f)]
    if options.structures:
        if options.jobs > 1:
            return run_jobs(options)
        return _structures(files, options)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = run(plan(files, options.count, options.seed), Path(folder), options.workers)
    for file, damage, outcome, message in results:
        if outcome in FAILURES:
            print(f"{outcome}: {file.name} ({damage}): {message}", file=sys.stderr)
    tally: dict[Path, Counter[str]] = {}
    for file, _, outcome, _ in results:
        tally.setdefault(file, Counter())[outcome] += 1
    print("| file | " + " | ".join(OUTCOMES) + " |")
    print("| --- |" + " ---: |" * len(OUTCOMES))
    for file, counts in tally.items():
        print(f"| {file.name} | " + " | ".join(str(counts[o]) for o in OUTCOMES) + " |")
    total = sum(tally.values(), Counter())
    print("| all | " + " | ".join(str(total[o]) for o in OUTCOMES) + " |")
    took = round(time.monotonic() - started, 1)
    print(json.dumps({"count": len(results), "seconds": took, **{o: total[o] for o in OUTCOMES}}))
    return 1 if any(total[o] for o in FAILURES) else 0


def _structures(files: list[Path], options: argparse.Namespace) -> int:
    """Print what became of well-formed hostile files, read in children under limits."""
    started = time.monotonic()
    total: Counter[str] = Counter()
    used: Used = {}
    cpu_s = 0.0
    numbers = range(options.first, options.first + options.count)
    with closing(run_structures(files, numbers, options.seed, options.keep)) as readings:
        for reading in readings:
            total[reading.outcome] += 1
            place = f"seed {options.seed}, mutant {reading.number} ({reading.name})"
            if reading.outcome in STRUCTURE_FAILURES:
                message = f"{reading.outcome}: {place}: {reading.message}"
                print(message, file=sys.stderr, flush=True)
            cpu_s += reading.cpu_s or 0.0
            add_used(used, {u: [(getattr(reading, u) or 0, place)] for u in USES})
            if options.seconds and time.monotonic() - started > options.seconds:
                break
    outcomes = ("read", "error", *STRUCTURE_FAILURES)
    print("| " + " | ".join(outcomes) + " |\n|" + " ---: |" * len(outcomes))
    print("| " + " | ".join(str(total[o]) for o in outcomes) + " |")
    took = round(time.monotonic() - started, 1)
    spent = {"seconds": took, "cpu_s": round(cpu_s, 1), MOST: used}
    print(json.dumps({"count": total.total(), **spent, **{o: total[o] for o in outcomes}}))
    return 1 if any(total[o] for o in STRUCTURE_FAILURES) else 0


if __name__ == "__main__":
    sys.exit(main())
