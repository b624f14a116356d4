"""Public captures of ranks against plain sorted intervals and no product code."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from statistics import median

import pytest

from analysis.readers import read
from analysis.trace.rank_numbers import RankPart
from analysis.trace.rank_times import join_ranks
from tests.analysis.plain_intervals import common_ns, length_ns, union

DATA = Path(__file__).resolve().parents[1] / "data" / "ranks"
HTA_OVERLAP_PCT = {"hta_sampled_rank-0": 14.95, "hta_sampled_rank-1": 19.93}
HTA_COMPUTE_NS = {"hta_sampled_rank-0": 210_320_000, "hta_sampled_rank-1": 271_973_000}


def kernels(name: str) -> list[tuple[int, int, str, dict]]:
    """Return (start, end, name, arguments) of each kernel in ns, by json and Decimal alone."""
    text = gzip.decompress((DATA / f"{name}.json.gz").read_bytes())
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    found = []
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat")).lower() == "kernel":
            start = int((Decimal(event["ts"]) * 1000).to_integral_value())
            length = int((Decimal(event["dur"]) * 1000).to_integral_value())
            found.append((start, start + length, event["name"], event["args"]))
    return found


@pytest.mark.parametrize("name", ("hta_sampled_rank-0", "hta_sampled_rank-1", "hta_nccl_arguments"))
def test_exposed_communication_is_that_of_plain_intervals(name: str) -> None:
    rows = kernels(name)
    talk = union([(a, b) for a, b, n, _ in rows if "nccl" in n])
    compute = union([(a, b) for a, b, n, _ in rows if "nccl" not in n])

    found = read(DATA / f"{name}.json.gz").ranks

    assert found is not None and len(found) == 1
    row = found.iloc[0]
    assert row["compute_ns"] == length_ns(compute)
    assert row["communication_ns"] == length_ns(talk)
    assert row["exposed_ns"] == length_ns(talk) - common_ns(talk, compute)
    assert row["num_kernels"] == len(rows)


@pytest.mark.parametrize("name", tuple(HTA_OVERLAP_PCT))
def test_overlap_is_what_holistic_trace_analysis_says(name: str) -> None:
    found = read(DATA / f"{name}.json.gz").ranks

    row = found.iloc[0]
    overlap = 1 - row["exposed_ns"] / row["communication_ns"]
    assert 100 * overlap == pytest.approx(HTA_OVERLAP_PCT[name], abs=0.005)
    assert row["compute_ns"] == HTA_COMPUTE_NS[name]


def test_bus_bandwidth_is_that_of_nccls_formula() -> None:
    calls: dict[int, list[int]] = {}
    for start, end, _, arguments in kernels("hta_nccl_arguments"):
        if arguments.get("Collective name") == "allreduce":
            calls.setdefault(4 * arguments["In msg nelems"], []).append(end - start)
    tables = read(DATA / "hta_nccl_arguments.json.gz")
    part = RankPart(file_name="r", ranks=tables.ranks, collectives=tables.collectives)

    table = join_ranks([part]).collectives

    reduces = table[table["kind"] == "all_reduce"].set_index("num_bytes")
    assert sorted(reduces.index) == sorted(calls)
    for size, durations in calls.items():  # 2 (n - 1) / n of two ranks is 1
        assert reduces.loc[size, "bus_gbps"] == pytest.approx(size / median(durations), rel=1e-12)
        assert reduces.loc[size, "total_ns"] == sum(durations)


def test_sampled_ranks_are_joined_and_their_collectives_are_not_paired() -> None:
    parts = []
    for name in HTA_OVERLAP_PCT:
        tables = read(DATA / f"{name}.json.gz")
        parts.append(RankPart(file_name=name, ranks=tables.ranks, collectives=tables.collectives))

    joined = join_ranks(parts)

    assert joined.ranks["rank"].tolist() == [0, 1]
    assert set(joined.collectives["kind"]) == {"all_to_all", "all_reduce", "all_gather"}
    assert joined.ranks["wait_ns"].isna().all()
    assert [w.code for w in joined.warnings] == ["ranks_missing", "collectives_not_paired"]
    assert joined.missing == tuple(range(2, 128))
