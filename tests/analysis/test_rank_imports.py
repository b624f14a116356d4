"""Which files make which ranks: by what they say, then by their names; never by a guess unsaid."""

import copy
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.readers import read
from analysis.trace.rank_numbers import RankPart
from analysis.trace.rank_times import JoinedRanks, join_ranks, stages_of
from tests.analysis.made_rank_exports import NUM_STEPS, write_export
from tests.analysis.made_rank_traces import write_trace

Edit = Callable[[int, dict[str, Any]], None]


def joined(paths: Sequence[Path]) -> JoinedRanks:
    parts = []
    for path in paths:
        tables = read(path)
        assert tables.ranks is not None and tables.collectives is not None
        parts.append(
            RankPart(file_name=path.name, ranks=tables.ranks, collectives=tables.collectives)
        )
    found = join_ranks(parts)
    assert found is not None
    return found


def traces(
    folder: Path, names: Sequence[str], edit: Edit | None = None, late_us: float = 0
) -> list[Path]:
    """Write rank 0, 1, ... under these names; rank i is i times `late_us` late."""
    for rank, name in enumerate(names):
        path = folder / name
        write_trace(path, rank, num_ranks=len(names), late_us=late_us * rank)
        if edit is not None:
            trace = json.loads(gzip.decompress(path.read_bytes()))
            edit(rank, trace)
            path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return [folder / name for name in names]


def silent(rank: int, trace: dict[str, Any]) -> None:
    """Take out all that says which rank a trace is of."""
    del trace["distributedInfo"]
    for event in trace["traceEvents"]:
        for name in ("Group size", "Process Group Name", "Process Group Ranks", "Seq"):
            event.get("args", {}).pop(name, None)


def without_collectives(rank: int, trace: dict[str, Any]) -> None:
    trace["traceEvents"] = [e for e in trace["traceEvents"] if "nccl" not in e["name"]]


def codes(found: JoinedRanks) -> list[str]:
    return [w.code for w in found.warnings]


def test_what_a_trace_says_comes_before_its_name(tmp_path: Path) -> None:
    found = joined(traces(tmp_path, ["rank1.json.gz", "rank0.json.gz"]))

    assert found.ranks["file_name"].tolist() == ["rank1.json.gz", "rank0.json.gz"]
    assert found.ranks["rank"].tolist() == [0, 1] and not codes(found)


@pytest.mark.parametrize(
    "names",
    [
        ("b-rank0.json.gz", "a-rank1.json.gz"),
        ("b-rank-0.json.gz", "a-rank-1.json.gz"),
        ("worker0.17.pt.trace.json.gz", "worker1.16.pt.trace.json.gz"),
        ("1700.5-TP-0.trace.json.gz", "1699.5-TP-1.trace.json.gz"),
        ("dp0_pp0_tp0_ep0_rank0.17.pt.trace.json.gz", "dp0_pp0_tp1_ep1_rank1.16.pt.trace.json.gz"),
    ],
)
def test_names_tell_ranks_where_nothing_else_does(tmp_path: Path, names: tuple[str, str]) -> None:
    paths = traces(tmp_path, names, silent, late_us=300)

    found = joined(paths[::-1])

    assert found.ranks["file_name"].tolist() == list(names) and not codes(found)
    assert found.ranks["late_ns"].tolist() == [0, 6 * 300_000]


def test_files_that_say_nothing_are_numbered_as_their_gpus_and_it_is_said(tmp_path: Path) -> None:
    paths = traces(tmp_path, ["host_812.json.gz", "host_77.json.gz"], silent)

    found = joined(paths[::-1])

    assert found.ranks["file_name"].tolist() == ["host_812.json.gz", "host_77.json.gz"]
    assert codes(found) == ["ranks_assumed"]


def test_the_jobs_size_is_what_the_trace_says_also_without_collectives(tmp_path: Path) -> None:
    names = [f"rank{rank}.json.gz" for rank in range(4)]
    paths = traces(tmp_path, names, without_collectives)

    found = joined([paths[1], paths[2]])

    assert found.missing == (0, 3)
    assert "ranks 0, 3 of 4 are not here" in found.warnings[0].message


def test_two_files_of_one_rank_give_no_number_over_ranks(tmp_path: Path) -> None:
    """Two jobs in one folder, or two recordings of one: their like collectives are not the same."""
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    paths = traces(first, ["a0.json.gz", "a1.json.gz"], late_us=300)
    paths += traces(second, ["b0.json.gz", "b1.json.gz"])

    found = joined(paths)

    assert codes(found) == ["several_jobs"]
    assert "a0.json.gz and b0.json.gz both hold rank 0" in found.warnings[0].message
    assert found.ranks["wait_ns"].isna().all() and found.steps.empty and not found.is_joined
    assert found.ranks["exposed_ns"].tolist() == [6 * us * 1_000 for us in (500, 200, 500, 500)]


def test_files_of_jobs_of_different_sizes_give_no_number_over_ranks(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for folder in (small, large):
        folder.mkdir()
    first = traces(small, ["s0.json.gz", "s1.json.gz"])[0]
    others = traces(large, [f"l{rank}.json.gz" for rank in range(4)])[1:]

    found = joined([first, *others])

    assert codes(found) == ["several_jobs"]
    assert "s0.json.gz is of a job of 2 ranks and l1.json.gz of one of 4" in str(found.warnings)
    assert found.ranks["wait_ns"].isna().all()


def test_ranks_of_other_hours_are_not_joined_by_their_like_collectives(tmp_path: Path) -> None:
    def an_hour_later(rank: int, trace: dict[str, Any]) -> None:
        silent(rank, trace)
        trace["baseTimeNanoseconds"] += rank * 3_600_000_000_000

    found = joined(traces(tmp_path, ["rank0.json.gz", "rank1.json.gz"], an_hour_later))

    assert found.ranks["clock"].tolist() == ["same", "stated"]
    assert found.ranks["offset_ns"].tolist() == [0, 3_600_000_000_000]
    assert found.ranks["wait_ns"].isna().all() and codes(found) == ["collectives_not_paired"]


def test_clocks_that_drift_are_put_on_one_axis(tmp_path: Path) -> None:
    """Rank 1's clock is 4 s ahead and gains 50 us a second: it still is 300 us late each step."""

    def other_clock(rank: int, trace: dict[str, Any]) -> None:
        for event in trace["traceEvents"] if rank else ():
            event["ts"] = event["ts"] * (1 + 50e-6) + 4_000_000
            event["dur"] *= 1 + 50e-6

    paths = traces(tmp_path, ["x.json.gz", "y.json.gz"], other_clock, late_us=300)

    second = joined(paths).ranks.iloc[1]

    assert second["clock"] == "collectives" and second["residual_ns"] < 1_000
    assert second["offset_ns"] == pytest.approx(-4_000_000_000, abs=1_000)
    assert second["late_ns"] == pytest.approx(6 * 300_000, rel=1e-3)


def test_without_collectives_and_clocks_each_rank_keeps_its_own_axis(tmp_path: Path) -> None:
    def bare(rank: int, trace: dict[str, Any]) -> None:
        without_collectives(rank, trace)
        del trace["baseTimeNanoseconds"]

    found = joined(traces(tmp_path, ["rank0.json.gz", "rank1.json.gz"], bare))

    assert found.ranks["clock"].tolist() == ["same", "none"]
    assert found.ranks["compute_ns"].tolist() == [6 * 400_000] * 2
    assert found.ranks["wait_ns"].isna().all() and not found.is_joined


def merged(folder: Path, rename: Callable[[int, dict[str, Any]], None]) -> JoinedRanks:
    """Return the ranks of one trace into which a tool wrote two, renaming each event."""
    events = []
    for rank in (0, 1):
        path = write_trace(folder / f"r{rank}.json.gz", rank, late_us=300 * rank)
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for event in copy.deepcopy(trace["traceEvents"]):
            rename(rank, event)
            events.append(event)
    path = folder / "merged.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return joined([path])


def _number(from_rank: int) -> Callable[[int, dict[str, Any]], None]:
    def rename(rank: int, event: dict[str, Any]) -> None:
        event["pid"] += 10_000 * (rank + from_rank)

    return rename


def _text(pattern: str) -> Callable[[int, dict[str, Any]], None]:
    def rename(rank: int, event: dict[str, Any]) -> None:
        event["pid"] = pattern.format(rank=rank, pid=event["pid"])

    return rename


def _argument(rank: int, event: dict[str, Any]) -> None:
    event.setdefault("args", {})["rank"] = rank


@pytest.mark.parametrize(
    ("rename", "is_said"),
    [
        (_number(0), False),
        (_number(1), True),  # whether rank 0 was left out cannot be told
        (_text("rank{rank}/{pid}"), False),
        (_text("[TP{rank:02d}] {pid}"), False),
        (_argument, False),
        (lambda rank, event: None, True),
    ],
)
def test_ranks_of_a_merged_trace_are_told_apart(
    tmp_path: Path, rename: Callable[[int, dict[str, Any]], None], is_said: bool
) -> None:
    found = merged(tmp_path, rename)

    assert found.ranks["rank"].tolist() == [0, 1] and not found.missing
    assert found.ranks["late_ns"].tolist() == [0, 6 * 300_000]
    assert found.ranks["exposed_ns"].tolist() == [6 * 500_000, 6 * 200_000]
    assert codes(found) == (["ranks_assumed"] if is_said else [])


@pytest.mark.parametrize("places", [((11, 0), (12, 1)), ((11, 0), (11, 1)), ((11, 0), (12, 0))])
def test_one_export_of_several_processes_or_gpus_has_their_ranks(
    tmp_path: Path, places: tuple[tuple[int, int], ...]
) -> None:
    found = joined([write_export(tmp_path / "job.sqlite", places, late_us=(0, 300))])

    assert found.ranks["clock"].tolist() == ["same", "same"]
    assert found.ranks["compute_ns"].tolist() == [NUM_STEPS * 400_000] * 2
    assert found.ranks["exposed_ns"].tolist() == [NUM_STEPS * 600_000, NUM_STEPS * 300_000]
    assert found.ranks["late_ns"].tolist() == [0, NUM_STEPS * 300_000]


def test_one_export_a_rank_is_joined_by_the_ends_of_collectives(tmp_path: Path) -> None:
    first = write_export(tmp_path / "nsys-rank0.sqlite", [(11, 0)])
    second = write_export(
        tmp_path / "nsys-rank1.sqlite", [(12, 0)], late_us=[300], shift_ns=5_000_000_000
    )

    found = joined([second, first])

    assert found.ranks["file_name"].tolist() == [first.name, second.name]
    assert found.ranks["clock"].tolist() == ["same", "collectives"]
    assert found.ranks["offset_ns"].tolist() == [0, -5_000_000_000]
    assert found.ranks["late_ns"].tolist() == [0, NUM_STEPS * 300_000]


def test_ranges_of_collectives_without_a_communication_kernel_are_read(tmp_path: Path) -> None:
    """A trace cut to some kernels keeps the host's `nccl:all_reduce`."""

    def cut(rank: int, trace: dict[str, Any]) -> None:
        without_collectives(rank, trace)
        pid = 4_000 + rank
        around = {"ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "ts": 1_001.0}
        trace["traceEvents"].append({**around, "dur": 5.0, "pid": pid, "tid": pid})

    found = joined(traces(tmp_path, ["rank0.json.gz"], cut))

    assert found.ranks["communication_ns"].tolist() == [0] and found.collectives.empty


def pipeline(
    folder: Path, num_stages: int, num_micro: int, streams: tuple[int, ...] = (20,)
) -> list[Path]:
    """Write a forward pipeline: stage s computes micro-batch m in slot s + m of 100 us.

    It receives in the 20 us before (waiting for the stage before it where that is later) and sends
    in the 20 us after, next to its compute. Each transfer has a part on every one of `streams`.
    """
    paths = []
    for stage in range(num_stages):
        events = []
        for micro in range(num_micro):
            begin = 1_000 + 100.0 * (stage + micro)
            rows = [("gemm", begin + 20, 60.0, 7, None)]
            if stage:
                rows += [("recv", begin, 20.0, stream, stage - 1) for stream in streams]
            if stage < num_stages - 1:
                rows += [("send", begin + 80, 20.0, stream, stage + 1) for stream in streams]
            for name, ts, dur, stream, peer in rows:
                arguments: dict[str, Any] = {"device": stage, "stream": stream}
                if peer is not None:
                    side = "Src Rank" if name == "recv" else "Dst Rank"
                    arguments |= {"Collective name": name, side: peer, "dtype": "Float"}
                    arguments |= {"In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2}
                kernel = "ncclDevKernel_SendRecv()" if peer is not None else "ampere_sgemm"
                event = {"ph": "X", "cat": "kernel", "name": kernel, "ts": ts, "dur": dur}
                events.append({**event, "pid": stage, "tid": stream, "args": arguments})
        info = {"rank": stage, "world_size": num_stages}
        path = folder / f"s{stage}.json"
        path.write_text(json.dumps({"distributedInfo": info, "traceEvents": events}))
        paths.append(path)
    return paths


@pytest.mark.parametrize("streams", [(20,), (20, 21)])
def test_sends_and_receives_show_the_stages_of_a_pipeline_and_their_bubbles(
    tmp_path: Path, streams: tuple[int, ...]
) -> None:
    found = joined(pipeline(tmp_path, num_stages=3, num_micro=4, streams=streams)).ranks

    assert found["stage"].tolist() == [0, 1, 2]
    # 60 us of compute in each slot. The first stage idles 20 us between its four slots, the last
    # too; each transfer of 20 us is exposed.
    spans = found["span_ns"].tolist()
    assert spans == [380_000, 400_000, 380_000]
    assert found["bubble_ns"].tolist() == [span - 4 * 60_000 for span in spans]


@pytest.mark.parametrize(
    ("peers", "stages"),
    [
        ({0: {1}, 1: {0, 2}, 2: {1, 3}, 3: {2}}, [0, 1, 2, 3]),
        ({0: {2}, 2: {0}, 1: {3}, 3: {1}}, [0, 0, 1, 1]),  # two pipelines of two
        ({0: {1, 3}, 1: {0, 2}, 2: {1, 3}, 3: {2, 0}}, [0, 1, 2, 3]),  # interleaved: a ring
        ({0: {1, 2, 3}, 1: {0, 2, 3}, 2: {0, 1, 3}, 3: {0, 1, 2}}, [None] * 4),  # an exchange
        ({1: {2}, 2: {1}}, [None, 0, 1, None]),
        ({}, [None] * 4),
    ],
)
def test_stages_are_the_places_in_a_chain(
    peers: dict[int, set[int]], stages: list[int | None]
) -> None:
    assert stages_of(range(4), peers) == stages


@pytest.mark.timeout(30)
def test_a_damaged_rank_and_job_size_cost_nothing(tmp_path: Path) -> None:
    def damaged(rank: int, trace: dict[str, Any]) -> None:
        trace["distributedInfo"] = {"rank": 2**31 - 2, "world_size": 2**31 - 1}

    found = joined(traces(tmp_path, ["a.json.gz"], damaged))

    assert found.missing == () and found.ranks["exposed_ns"].tolist() == [6 * 600_000 - 6 * 100_000]
