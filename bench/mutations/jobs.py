"""Share the reading of hostile files among processes, and add up what they found."""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.mutations.structures import FAILURES
from core.config import ROOT

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
