"""Break everything, again and again, and see that nothing is lost: `python -m bench.faults`.

Real Redis, dashboard API, ingest and workers; only the measured program is a stand-in, so that
hundreds of jobs fit (bench/faults/program.py). Faults come from a seeded sequence; when each hits
is up to the machine. As root it works in network and mount namespaces of its own, which it needs
for the network cut and the full disks; otherwise those are left out and the table says 0. The wall
clock jumps by a preloaded library (bench/faults/clock.c; needs a C compiler). Prints a table and
one JSON line; exit code 1 if anything that must hold does not.
"""

import argparse
import json
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.faults.cast import marked
from bench.faults.check import check, log_faults
from bench.faults.kinds import KINDS
from bench.faults.network import enter_private_network
from bench.faults.stage import Stage

START_LIMIT_S = 120.0
QUEUE_DEPTH = 6


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="part of a fault's name: this kind alone")
    parser.add_argument("--pages", action="store_true", help="serve the pages beside the API")
    parser.add_argument("--settle", type=float, default=300.0, help="seconds to come to rest")
    parser.add_argument("--dir", help="folder to work in, kept; must not exist")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    private = enter_private_network()
    root = Path(options.dir) if options.dir else Path(tempfile.mkdtemp()) / "faults"
    root.mkdir(parents=True)
    begin_s = time.monotonic()
    stage = Stage(root, private=private, pages=options.pages)
    try:
        counts = _campaign(stage, options, random.Random(options.seed))
        settled_s = _settle(stage, options.settle)
    finally:
        stage.heal()
        stage.close()
    time.sleep(3)
    spools = [disk.path / "spool" for disk in stage.worker_disks]
    result = check(stage.data, stage.run_ids, stage.journal, spools, marked(stage.mark))
    result |= {"bench": "faults", "seed": options.seed, "num_jobs": len(stage.run_ids)}
    result |= {"num_faults": sum(counts.values()), "faults": dict(counts)}
    result |= {"settle_s": settled_s, "wall_s": round(time.monotonic() - begin_s)}
    result |= {"in_logs": log_faults(root), "namespaces": private, "clock": stage.has_clock}
    result |= {"num_told_in_vain": stage.num_told_in_vain}
    _print(result)
    is_wrong = any(result["wrong"].values()) or any(result["in_logs"].values())
    return 1 if is_wrong or settled_s is None else 0


def _campaign(stage: Stage, options: argparse.Namespace, rng: random.Random) -> Counter[str]:
    """Inject faults while jobs keep coming; return how often each kind was done."""
    _start(stage)
    names = [n for n in KINDS if not options.only or options.only in n]
    weights = [KINDS[name][1] for name in names]
    counts: Counter[str] = Counter()
    in_vain = 0
    while sum(counts.values()) < options.faults or len(stage.run_ids) < options.jobs:
        _feed(stage, rng)
        stage.rest(rng.uniform(0.3, 1.5))
        if sum(counts.values()) >= options.faults:
            continue
        name = rng.choices(names, weights)[0]
        is_done = _inject(stage, name, rng)
        counts[name] += is_done
        in_vain = 0 if is_done else in_vain + 1
        if in_vain > 100:
            raise RuntimeError(f"{name} cannot be done here")
        if is_done and sum(counts.values()) % 10 == 0:
            done = f"{sum(counts.values())} faults, {len(stage.run_ids)} jobs"
            print(f"{done}, {stage.num_active()} at work", file=sys.stderr, flush=True)
    return counts


def _inject(stage: Stage, name: str, rng: random.Random) -> bool:
    """Do one fault and take what lasts away again; say whether it could be done."""
    try:
        return KINDS[name][0](stage, rng)
    except (OSError, sqlite3.Error) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    finally:
        stage.heal()


def _start(stage: Stage) -> None:
    until_s = time.monotonic() + START_LIMIT_S
    while not stage.data.db_path.exists() or not stage.data.token_path.exists():
        stage.rest(0.2)
        if time.monotonic() > until_s:
            raise RuntimeError(f"the dashboard does not start; see {stage.root / 'logs'}")
    stage.rest(5)


def _feed(stage: Stage, rng: random.Random) -> None:
    try:
        missing = QUEUE_DEPTH - stage.num_active()
        for _ in range(missing):
            stage.submit(round(rng.uniform(0.1, 1.5), 2), f"job {len(stage.run_ids)}")
    except Exception as error:  # the disk may be full: as for a person, it is tried again later
        print(f"not submitted: {error}", file=sys.stderr)


def _settle(stage: Stage, limit_s: float) -> int | None:
    """Wait until every run has ended and every bundle is delivered; None if that does not come."""
    stage.heal()
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < limit_s:
        stage.rest(1.0)
        waiting = [p for d in stage.worker_disks for p in (d.path / "spool").glob("r*/")]
        if stage.num_active() == 0 and not [p for p in waiting if p.name != "refused"]:
            return round(time.monotonic() - begin_s)
    return None


def _print(result: dict[str, Any]) -> None:
    for name, (_, _) in KINDS.items():
        print(f"{name:42} {result['faults'].get(name, 0):5}")
    print(f"{'faults':42} {result['num_faults']:5}")
    print(f"{'jobs':42} {result['num_jobs']:5}")
    for status, count in sorted(result["ended"].items()):
        print(f"{'  ended ' + status:42} {count:5}")
    print(f"{'captures stored':42} {result['num_captures']:5}")
    print("\nmust be 0")
    for name, count in (result["wrong"] | result["in_logs"]).items():
        print(f"{name:42} {count:5}")
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
