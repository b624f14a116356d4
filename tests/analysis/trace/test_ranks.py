"""Ranks of a capture and over captures: every figure here can be checked by hand."""

import numpy as np
import pandas as pd
import pytest

from analysis.trace.collective_kinds import bus_factor, element_bytes, kind_of
from analysis.trace.rank_numbers import RankPart, rank_in_name
from analysis.trace.rank_times import join_ranks
from analysis.trace.ranks import rank_tables
from tests.analysis.trace.made_ranks import ALL_REDUCE, GEMM, SEND_RECV, rank_trace

US = 1_000


def part(kernels, name="a.json", **more):
    tables = rank_tables(rank_trace(kernels, **more))
    return RankPart(file_name=name, ranks=tables.ranks, collectives=tables.collectives)


def lockstep(rank, *, late_us=0, shift_ns=0, drift=0.0, num=40, **more):
    """Return a rank that computes 100 us and all-reduces 4 MB until all are there, `num` times.

    Each round starts every 300 us; the collective ends 250 us into it on every rank.
    """
    kernels = []
    for i in range(num):
        base = i * 300 * US
        compute_end = base + 100 * US + late_us * US
        times = [base + late_us * US, compute_end, base + 250 * US]
        a, b, c = (t + shift_ns + round(drift * t) for t in times)
        kernels += [(a, b, GEMM), (b, c, ALL_REDUCE)]
    given = {"num_elements": [1_000_000] * num, "sequence": range(num)} | more
    return part(kernels, f"trace-rank{rank}.json", rank=rank, **given)


def test_communication_is_exposed_where_no_compute_runs():
    found = part([(0, 100, GEMM), (50, 150, ALL_REDUCE), (140, 160, GEMM), (200, 230, ALL_REDUCE)])

    row = found.ranks.iloc[0]
    assert row["kernel_time_ns"] == 100 + 100 + 20 + 30
    assert row["span_ns"] == 230 and row["busy_ns"] == 160 + 30
    assert row["compute_ns"] == 120 and row["communication_ns"] == 130
    # 50..100 and 140..150 of the first are covered; the second is not.
    assert row["exposed_ns"] == 130 - 60
    assert found.collectives["exposed_ns"].tolist() == [40, 30]


@pytest.mark.parametrize(
    ("kind", "num_ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("all_to_all", 2, 0.5),
        ("send_recv", 8, 1.0),
        ("broadcast", 8, 1.0),
    ],
)
def test_bus_factor_is_nccls(kind, num_ranks, factor):
    assert bus_factor(kind, num_ranks) == factor


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("_allgather_base", "all_gather"),
        ("all_to_allv", "all_to_all"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>()", "all_reduce"),
        ("recv", "send_recv"),
        ("wait", "unknown"),
    ],
)
def test_kind_is_read_from_kernels_and_calls(name, kind):
    assert kind_of(name) == kind


def test_element_sizes_of_pytorch_and_nccl():
    assert [element_bytes(t) for t in ("Float", "BFloat16", "Float8_e4m3fn", "Long")] == [
        4,
        2,
        1,
        8,
    ]
    assert element_bytes("Quaternion") is None and element_bytes(None) is None


def test_bandwidth_is_size_over_time_and_nccls_factor():
    joined = join_ranks([lockstep(0), lockstep(1)])

    row = joined.collectives.iloc[0]
    assert (row["kind"], row["num_bytes"], row["num_calls"]) == ("all_reduce", 4_000_000, 80)
    # 4 MB in 150 us; two ranks, so the bus bandwidth is the same.
    assert row["algorithm_gbps"] == pytest.approx(4e6 / 150e3)
    assert row["bus_gbps"] == pytest.approx(4e6 / 150e3)


def test_waiting_for_the_slowest_is_told_from_transfer():
    joined = join_ranks([lockstep(0), lockstep(1, late_us=30)])

    row = joined.collectives.iloc[0]
    assert row["wait_ns"] == 40 * 30 * US
    assert row["transfer_ns"] == 80 * 120 * US
    assert row["transfer_bus_gbps"] == pytest.approx(4e6 / 120e3)
    assert joined.ranks["late_ns"].tolist() == [0, 40 * 30 * US]
    assert joined.ranks["wait_ns"].tolist() == [40 * 30 * US, 0]


def test_two_collectives_that_a_rank_is_late_for_at_once_are_waited_for_once():
    def two_at_once(rank, late_us):
        kernels = []
        for i in range(40):
            base = i * 500 * US
            kernels.append((base, base + 100 * US, GEMM))
            for k in range(2):
                begin = base + (100 + k + late_us) * US
                kernels.append((begin, base + 300 * US, ALL_REDUCE))
        tables = rank_tables(
            rank_trace(kernels, rank=rank, num_elements=[10] * 80, sequence=range(80)),
            op_step=np.repeat(np.arange(40), 3),
        )
        return RankPart(file_name=f"rank{rank}", ranks=tables.ranks, collectives=tables.collectives)

    joined = join_ranks([two_at_once(0, 0), two_at_once(1, 30)])

    # Late from 100 us to 130 us for the one, from 101 us to 131 us for the other.
    assert joined.ranks["late_ns"].tolist() == [0, 40 * 31 * US]
    assert joined.ranks["wait_ns"].tolist() == [40 * 31 * US, 0]
    assert joined.collectives["wait_ns"].tolist() == [2 * 40 * 30 * US]
    assert (joined.steps["straggler"] == 1).all()
    assert (joined.steps["waited_ns"] == 31 * US).all()


def test_clocks_are_joined_by_the_ends_of_collectives():
    joined = join_ranks([lockstep(0), lockstep(1, late_us=30, shift_ns=7_000_000_000, drift=2e-5)])

    first, second = joined.ranks.to_dict("records")
    assert (first["clock"], second["clock"]) == ("same", "collectives")
    assert second["offset_ns"] == pytest.approx(-7_000_000_000, abs=20 * US)
    assert second["drift_ppm"] == pytest.approx(-20, rel=0.05)
    assert second["residual_ns"] < 10
    assert joined.ranks["wait_ns"].tolist()[0] == pytest.approx(40 * 30 * US, rel=1e-3)


def test_what_the_files_state_serves_where_no_collective_is_shared():
    kernels = [(0, 100, GEMM)]
    parts = [
        part(kernels, rank=0, utc_origin_ns=5_000),
        part(kernels, rank=1, utc_origin_ns=5_400),
    ]

    joined = join_ranks(parts)

    assert joined.ranks["clock"].tolist() == ["same", "stated"]
    assert joined.ranks["offset_ns"].tolist() == [0, 400]


def test_no_number_over_ranks_without_a_common_clock():
    kernels = [(0, 100, GEMM), (100, 200, ALL_REDUCE)]

    joined = join_ranks([part(kernels, rank=0), part(kernels, rank=1)])

    assert joined.ranks["clock"].tolist() == ["same", "none"]
    assert joined.ranks["wait_ns"].isna().all() and joined.ranks["offset_ns"].isna().tolist()[1]
    assert joined.collectives["wait_ns"].isna().all() and joined.steps.empty
    assert not joined.is_joined
    assert [w.code for w in joined.warnings] == ["ranks_not_aligned"]


def test_collectives_that_end_apart_are_not_taken_for_one():
    def told(rank, shift_ns):
        kernels = [(0, 100, GEMM), (100 + shift_ns, 5_000_000 + shift_ns, ALL_REDUCE)]
        return part(kernels, rank=rank, utc_origin_ns=0)

    joined = join_ranks([told(0, 0), told(1, 3_000_000)])

    assert joined.ranks["clock"].tolist() == ["same", "stated"]
    assert joined.ranks["wait_ns"].isna().all()
    assert [w.code for w in joined.warnings] == ["collectives_not_paired"]


def test_captures_of_other_windows_are_paired_by_sequence_number():
    early, late = lockstep(0, num=40), lockstep(1, num=40)
    late.collectives["sequence"] += 10
    late.collectives[["start_ns", "end_ns"]] += 10 * 300 * US

    joined = join_ranks([early, late])

    assert joined.ranks["clock"].tolist()[1] == "collectives"
    assert joined.ranks["offset_ns"].tolist()[1] == pytest.approx(0, abs=5)


def test_calls_without_sequence_are_paired_only_in_equal_numbers():
    whole = lockstep(0, num=40, num_elements=(), sequence=())
    same = lockstep(1, num=40, num_elements=(), sequence=())
    fewer = lockstep(1, num=39, num_elements=(), sequence=())

    assert join_ranks([whole, same]).ranks["clock"].tolist()[1] == "collectives"
    assert join_ranks([whole, fewer]).ranks["clock"].tolist()[1] == "none"


def test_a_missing_rank_is_said():
    joined = join_ranks([lockstep(0, group_size=4), lockstep(2, group_size=4)])

    assert joined.missing == (1, 3)
    assert "ranks 1, 3 of 4 are not here" in joined.warnings[0].message


def test_rank_comes_from_content_before_the_files_name():
    inside = lockstep(3)
    by_name = RankPart(
        file_name="worker0.pt.trace.json",
        ranks=inside.ranks.assign(rank=np.array([None], object)).astype({"rank": "Int64"}),
        collectives=inside.collectives,
    )

    assert join_ranks([lockstep(1), inside]).ranks["rank"].tolist() == [1, 3]
    assert join_ranks([lockstep(1), by_name]).ranks["rank"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json.gz", 0),
        ("trace_rank-12.json", 12),
        ("host.worker3.pt.trace.json", 3),
        ("nsys-0-rank1.sqlite", 1),
        ("frank1.json", None),
        ("report.sqlite", None),
    ],
)
def test_rank_in_a_files_name(name, rank):
    assert rank_in_name(name) == rank


def of_no_stated_job(ranks):
    return ranks.assign(
        rank=pd.array([pd.NA] * len(ranks), "Int64"),
        world_size=pd.array([pd.NA] * len(ranks), "Int64"),
    )


@pytest.mark.parametrize("name", ["bench_gpu4.sqlite", "llama-tp8.json", "gpu3__report.sqlite"])
def test_one_file_that_calls_nobody_is_no_rank_because_its_name_counts_gpus(name):
    alone = part([(0, 100, GEMM)], name)

    joined = join_ranks([alone])

    assert joined.ranks["rank"].tolist() == [0]
    assert joined.missing == () and not joined.warnings


def test_one_file_that_calls_others_is_the_rank_that_its_name_says():
    inside = lockstep(3)
    one_of_four = RankPart(
        file_name="llama-TP-3.json",
        ranks=of_no_stated_job(inside.ranks),
        collectives=inside.collectives,
    )

    assert join_ranks([one_of_four]).missing == (0, 1, 2)


def test_two_captures_whose_names_give_one_rank_are_numbered_and_said():
    kernels = [(0, 100, GEMM)]
    parts = [part(kernels, "rank0.json", rank=None) for _ in range(2)]

    joined = join_ranks(parts)

    assert joined.ranks["rank"].tolist() == [0, 1]
    assert joined.warnings[0].code == "ranks_assumed"


def stepped(rank, late_ns, where="data_loader", *, is_late_in_it=True):
    """Return a rank of four steps: it computes 1 ms after `late_ns` of idle time, then reduces."""
    kernels, ranges = [], []
    for i in range(4):
        base, end = i * 20_000_000, i * 20_000_000 + 15_000_000
        kernels += [(base + late_ns, base + late_ns + 1_000_000, GEMM)]
        kernels += [(base + late_ns + 1_000_000, end, ALL_REDUCE)]
        ranges.append((where, base - 5_000_000, base + late_ns * is_late_in_it))
    trace = rank_trace(kernels, rank=rank, num_elements=[10] * 4, sequence=range(4), ranges=ranges)
    tables = rank_tables(trace, op_step=np.repeat(np.arange(4), 2))
    return RankPart(file_name=f"rank{rank}", ranks=tables.ranks, collectives=tables.collectives)


def test_a_late_rank_is_named_with_what_it_did_meanwhile():
    joined = join_ranks([stepped(0, 0), stepped(1, 12_000_000), stepped(2, 1_000_000)])

    last = joined.steps.iloc[-1]
    assert len(joined.steps) == 4
    assert last["straggler"] == 1 and last["skew_ns"] == 12_000_000
    # Rank 2 arrives 1 ms late itself: all others waited 11 ms for rank 1 alone.
    assert last["waited_ns"] == 11_000_000
    assert (last["cause"], last["where"]) == ("host", "data_loader")


def slow_host(rank, waits_ms, places):
    """Return a rank of three steps whose kernels of 1 us come with idle time between them.

    Before the collective i of a step it adds up to `waits_ms[i]`, in 20 parts, in `places[i]`.
    """
    kernels, ranges, at = [], [], 0
    for _ in range(3):
        for i, wait_ms in enumerate(waits_ms):
            begin = at
            for _ in range(20):
                at += wait_ms * 50_000
                kernels.append((at, at + US, GEMM))
                at += US
            ranges.append((places[i], begin, at))
            ends = begin + 10_000_000
            kernels.append((at, ends, ALL_REDUCE))
            at = ends
    num = 3 * len(waits_ms)
    trace = rank_trace(
        kernels, rank=rank, num_elements=[10] * num, sequence=range(num), ranges=ranges
    )
    step = np.repeat(np.arange(3), 21 * len(waits_ms))
    tables = rank_tables(trace, op_step=step)
    return RankPart(file_name=f"rank{rank}", ranks=tables.ranks, collectives=tables.collectives)


def test_a_rank_is_late_where_most_of_the_waiting_came_from():
    slow, fast = [4, 3, 3, 3, 3], [1, 1, 1, 1, 1]
    places = ["optimizer", *["backward"] * 4]

    ranks = [slow_host(0, fast, places), slow_host(1, slow, places)]
    last = join_ranks(ranks).steps.iloc[-1]

    # The longest single wait, 3 ms, is for the optimizer; four of 2 ms each are for backward.
    assert (last["straggler"], last["waited_ns"]) == (1, 11_000_000)
    assert (last["cause"], last["where"]) == ("host", "backward")


def test_no_place_is_named_where_the_waiting_came_from_everywhere():
    places = ["optimizer", "forward", "backward"]

    ranks = [slow_host(r, [ms] * 3, places) for r, ms in enumerate((1, 3))]
    last = join_ranks(ranks).steps.iloc[-1]

    assert (last["straggler"], last["waited_ns"]) == (1, 6_000_000)
    assert (last["cause"], last["where"]) == ("host", None)


def test_what_all_ranks_do_as_long_is_not_where_one_is_late():
    joined = join_ranks([stepped(0, 0), stepped(1, 4_000_000, is_late_in_it=False)])

    last = joined.steps.iloc[-1]
    assert (last["straggler"], last["waited_ns"]) == (1, 4_000_000)
    assert (last["cause"], last["where"]) == ("host", None)


def test_sends_and_receives_are_no_barrier():
    kernels = [(0, 100, GEMM), (100, 200, SEND_RECV)]

    joined = join_ranks([part(kernels, rank=0), part(kernels, rank=1)])

    assert joined.collectives["kind"].tolist() == ["send_recv"]
    assert joined.collectives["wait_ns"].isna().all()
