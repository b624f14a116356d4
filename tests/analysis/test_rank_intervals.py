"""Random traces of a rank against plain sorted intervals and no product code."""

import itertools
import json
import random
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from analysis.readers import read
from analysis.trace.rank_numbers import RankPart
from analysis.trace.rank_times import join_ranks
from tests.analysis.plain_intervals import common_ns, length_ns, union

NUM_RANKS = 4
COMPUTE = "ampere_sgemm_128x64_tn"
KINDS = {  # recorded name -> (kernel, kind, factor for 4 ranks)
    "allreduce": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", "all_reduce", 1.5),
    "_allgather_base": ("ncclDevKernel_AllGather_RING_LL()", "all_gather", 0.75),
    "_reduce_scatter_base": ("ncclDevKernel_ReduceScatter_Sum_f32()", "reduce_scatter", 0.75),
    "all_to_allv": ("ncclDevKernel_SendRecv()", "all_to_all", 0.75),
    "send": ("ncclDevKernel_SendRecv()", "send_recv", 1.0),
}
BYTES = {"Float": 4, "BFloat16": 2, "Long": 8}


def random_trace(seed: int) -> list[dict[str, Any]]:
    """Return kernels one after another on each of four streams, which overlap at will."""
    made = random.Random(seed)
    free_at = dict.fromkeys((7, 20, 21, 22), 1_000_000)
    events: list[dict[str, Any]] = []
    for number in range(1, 301):
        stream = made.choice(list(free_at))
        start = free_at[stream] + made.choice((0, 1, 900, 25_000, 60_000))
        length = made.choice((1, 700, 3_000, 12_000))
        free_at[stream] = start + length
        arguments: dict[str, Any] = {"device": 0, "stream": stream, "correlation": number}
        kind = made.choice(list(KINDS)) if stream != 7 else None
        if kind is not None:
            sizes = {
                "In msg nelems": made.choice((1, 100)),
                "Out msg nelems": made.choice((2, 400)),
            }
            arguments |= sizes | {"Collective name": kind, "dtype": made.choice(list(BYTES))}
            arguments |= {"Group size": NUM_RANKS}
        name = KINDS[kind][0] if kind else COMPUTE
        event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream}
        events.append({**event, "ts": start / 1e3, "dur": length / 1e3, "args": arguments})
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9}
        launch = start - made.choice((500, 20_000))
        events.append({**call, "ts": launch / 1e3, "dur": 0.1, "args": {"correlation": number}})
    return events


def plain(events: list[dict[str, Any]]) -> list[tuple[int, int, str, dict[str, Any]]]:
    return [
        (a := round(e["ts"] * 1000), a + round(e["dur"] * 1000), e["name"], e["args"])
        for e in events
        if e["cat"] == "kernel"
    ]


@pytest.mark.parametrize("seed", range(5))
def test_ranks_and_collectives_are_those_of_plain_intervals(tmp_path: Path, seed: int) -> None:
    events = random_trace(seed)
    rows = plain(events)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    tables = read(path)
    assert tables.ranks is not None and tables.collectives is not None
    joined = join_ranks(
        [RankPart(file_name="r", ranks=tables.ranks, collectives=tables.collectives)]
    )

    talk = union([(a, b) for a, b, n, _ in rows if "nccl" in n])
    compute = union([(a, b) for a, b, n, _ in rows if "nccl" not in n])
    busy = union([(a, b) for a, b, _, _ in rows])
    assert joined is not None
    row = joined.ranks.iloc[0]
    assert (row["compute_ns"], row["communication_ns"]) == (length_ns(compute), length_ns(talk))
    assert row["exposed_ns"] == length_ns(talk) - common_ns(talk, compute)
    assert (row["busy_ns"], row["span_ns"]) == (length_ns(busy), busy[-1][1] - busy[0][0])
    _check_collectives(rows, joined.collectives.to_dict("records"), compute)


def _check_collectives(
    rows: list[tuple[int, int, str, dict[str, Any]]],
    table: list[dict[str, Any]],
    compute: list[list[int]],
) -> None:
    calls = defaultdict(list)
    for start, end, _, arguments in rows:
        if "Collective name" in arguments:
            elements = max(arguments["In msg nelems"], arguments["Out msg nelems"])
            _, kind, factor = KINDS[arguments["Collective name"]]
            calls[kind, elements * BYTES[arguments["dtype"]], factor].append((start, end))
    assert len(table) == len(calls)
    for found in table:
        (key,) = [k for k in calls if k[:2] == (found["kind"], found["num_bytes"])]
        spans = calls[key]
        durations = [end - start for start, end in spans]
        exposed = sum(d - common_ns([[*s]], compute) for d, s in zip(durations, spans, strict=True))
        assert (found["total_ns"], found["exposed_ns"]) == (sum(durations), exposed)
        if median(durations):
            wanted = key[1] / median(durations) * key[2]
            assert found["bus_gbps"] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_idle_time_is_split_by_whether_the_next_launch_came_in_it(
    tmp_path: Path, seed: int
) -> None:
    events = random_trace(seed)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    launch = {
        e["args"]["correlation"]: round(e["ts"] * 1000)
        for e in events
        if e["cat"] == "cuda_runtime"
    }
    in_time = sorted(
        (a, b, launch[arguments["correlation"]]) for a, b, _, arguments in plain(events)
    )
    reached = list(itertools.accumulate((end for _, end, _ in in_time), max))
    after = list(zip(reached, in_time[1:], strict=False))
    started = [a - launched for reach, (a, _, launched) in after if launched >= reach]
    latency = int(median(s for s in started if s < 1_000_000))
    late = queued = 0
    for reach, (start, _, launched) in after:
        if start > reach:
            could = start if launched >= reach else min(max(launched + latency, reach), start)
            late += could - reach
            queued += start - could

    gaps = read(path).gaps
    assert gaps is not None
    by_cause = gaps.groupby("cause")["total_ns"].sum().to_dict()

    assert by_cause.pop("unknown", 0) == queued
    assert sum(by_cause.values()) == late
