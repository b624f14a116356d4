"""From stored runs to a verdict: runs that ran in turn (A B A B) are found, paired and judged."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from sqlite_utils import Database

from analysis.assemble import assemble
from analysis.compare.engine import compare
from analysis.compare.evaluate import find_order
from analysis.compare.records import Comparison
from analysis.rundata import RunData
from bench.verdicts import load_real
from core.config import DataDir
from core.spec import JobSpec
from db.fetch import run_view
from db.history import find_repeats
from db.ingest import ingest_run
from db.runs import insert_run, insert_sweep

NUM_PAIRS = 8
DRIFT_FRAC = 0.01
TRUE_RATIO = 1.10
START = datetime(2026, 11, 28, 10, tzinfo=UTC)


def store_run(db: Database, data_dir: DataDir, sweep: str, place: int, ms: np.ndarray) -> str:
    """Store one finished run of the sweep, the `place`-th in time, with these latencies."""
    params = {"compile": "none" if place % 2 == 0 else "default", "seq": 512}
    spec = JobSpec(workload="decode", params=params, gpu="NVIDIA H100 80GB HBM3")
    run_id = insert_run(db, spec=spec, name=f"run {place}", sweep_id=sweep)
    begin = START + timedelta(minutes=place)
    db.conn.execute(
        "UPDATE runs SET status = 'ingesting', started_at = ? WHERE id = ?",
        (begin.isoformat(), run_id),
    )
    samples = pd.DataFrame(
        {
            "pass": "clean",
            "process": 0,
            "iteration": range(len(ms)),
            "latency_ns": (ms * 1e6).round().astype("int64"),
        }
    )
    data = RunData(
        status="done",
        samples=samples,
        content_hash=run_id,
        finished_at=(begin + timedelta(seconds=50)).isoformat(),
    )
    ingest_run(db, data_dir, run_id, assemble(data))
    return run_id


@pytest.fixture
def in_turn(db: Database, data_dir: DataDir) -> Comparison:
    """Store 8 pairs A B A B of real decode latencies on a drifting machine, B 10 % slower."""
    real = np.concatenate(load_real()[512])
    pieces = np.array_split(real / np.median(real), 2 * NUM_PAIRS)
    sweep = insert_sweep(db, "in turn")
    ids = []
    for place, piece in enumerate(pieces):
        level = 3.0 * (1 + DRIFT_FRAC) ** place * (TRUE_RATIO if place % 2 else 1.0)
        steady = piece / np.median(piece)  # levels of the pieces are set here, their noise is real
        ids.append(store_run(db, data_dir, sweep, place, level * steady))
    found = find_repeats(db, ids[:1], ids[1:2])
    a, b = ([run_view(db, data_dir, run_id) for run_id in side] for side in (found.a, found.b))
    assert find_order(a, b, len(a), len(b)) == "paired"
    return compare(a, b)


def test_runs_in_turn_are_paired_and_the_drift_between_them_is_taken_off(in_turn) -> None:
    assert (in_turn.a.n_processes, in_turn.b.n_processes) == (NUM_PAIRS, NUM_PAIRS)
    assert in_turn.verdict == "slower"
    assert in_turn.ratio == pytest.approx(TRUE_RATIO, rel=2e-4)
    plain = in_turn.b.median / in_turn.a.median
    assert plain == pytest.approx(TRUE_RATIO * (1 + DRIFT_FRAC), rel=5e-3)


def test_the_interval_of_runs_in_turn_lies_around_their_ratio(in_turn) -> None:
    low, high = in_turn.ci95

    assert low < in_turn.ratio < high
    assert in_turn.ratio / low == pytest.approx(high / in_turn.ratio)


def test_a_stored_run_has_one_latency_wherever_it_is_read(in_turn, db, data_dir) -> None:
    view = run_view(db, data_dir, in_turn.a.run_ids[0])

    alone = compare([view], [view])

    values = view.samples["latency_ns"].to_numpy() / 1e6
    assert alone.a.median == view.summary["latency_ms"]["median"] == np.median(values)
    assert alone.scoreboard[0].latency_ms == alone.a.median
