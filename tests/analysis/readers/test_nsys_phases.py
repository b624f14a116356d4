"""Range attribution against a slow reading, and the cases where a wrong answer is easy."""

import pytest

from analysis.readers.nsys.export import read_nsys_sqlite
from tests.analysis.readers.nsys_files import NSYS, edited, rows, slow_phases


def by_last_name(path):
    phases = read_nsys_sqlite(path).phases
    last = phases["path"].str.rsplit("/", n=1).str[-1]
    sums = phases.groupby(last)[["num_kernels", "kernel_ns", "num_ranges"]].sum()
    return {
        name: tuple(map(int, values))
        for name, values in zip(sums.index, sums.to_numpy(), strict=True)
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train_bf16", {"forward": (1178, 5_288_319), "backward": (1872, 9_272_899)}),
        ("train_bf16", {"optimizer": (112, 7_654_488)}),
        ("decode_eager", {"attention": (220, 942_715), "mlp": (160, 1_241_595)}),
        ("forward_fp32", {"softmax": (48, 956_310)}),
    ],
)
def test_phase_sums_are_those_of_the_readme(name, expected):
    found = by_last_name(NSYS / f"{name}.sqlite")
    assert {phase: found[phase][1] for phase in expected} == {
        phase: total for phase, (_, total) in expected.items()
    }


def test_attention_parts_of_the_forward_pass():
    found = by_last_name(NSYS / "forward_fp32.sqlite")
    assert found["attention_scores"][1] == 2_654_236
    assert found["attention_output"][1] == 1_268_318


@pytest.mark.parametrize("name", ["decode_eager", "forward_fp32", "train_bf16"])
def test_every_range_agrees_with_a_slow_reading(name):
    path = NSYS / f"{name}.sqlite"
    assert by_last_name(path) == slow_phases(path)


def test_backward_says_that_time_gave_it_its_kernels():
    phases = read_nsys_sqlite(NSYS / "train_bf16.sqlite").phases.set_index("path")
    assert phases.loc["BENCHMARK/iteration_0/backward", "attribution"] == "process_time"
    assert phases.loc["BENCHMARK/iteration_0/forward", "attribution"] == "launch_thread"
    assert phases.loc["BENCHMARK", "num_kernels"] == 3162


def test_start_end_ranges_count_like_push_pop_ones(tmp_path):
    path = edited(
        "train_bf16.sqlite",
        tmp_path,
        ["UPDATE NVTX_EVENTS SET eventType = 60 WHERE eventType = 59"],
    )
    expected = read_nsys_sqlite(NSYS / "train_bf16.sqlite").phases
    assert read_nsys_sqlite(path).phases.equals(expected)


def test_registered_strings_and_domains_make_the_name(tmp_path):
    path = edited(
        "decode_eager.sqlite",
        tmp_path,
        [
            "INSERT INTO StringIds VALUES (900001, 'attention')",
            "UPDATE NVTX_EVENTS SET text = NULL, textId = 900001 WHERE text = 'attention'",
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) "
            "SELECT 0, 75, 'train', globalTid, 7 FROM NVTX_EVENTS WHERE text = 'BENCHMARK'",
            "UPDATE NVTX_EVENTS SET domainId = 7 WHERE text = 'mlp'",
        ],
    )
    found = by_last_name(path)
    assert found["attention"][:2] == (220, 942_715)
    assert found["train:mlp"][:2] == (160, 1_241_595)


def test_overlapping_ranges_of_one_name_count_a_kernel_once(tmp_path):
    (start, end), *_ = rows(
        NSYS / "decode_eager.sqlite",
        "SELECT start, \"end\" FROM NVTX_EVENTS WHERE text = 'BENCHMARK'",
    )
    insert = (
        'INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId) '
        "SELECT {}, {}, 60, 'request', globalTid, 0 FROM NVTX_EVENTS WHERE text = 'BENCHMARK'"
    )
    middle = (start + end) // 2
    path = edited(
        "decode_eager.sqlite",
        tmp_path,
        [
            insert.format(start - 10, middle + 2_000_000),
            insert.format(middle - 2_000_000, end + 10),
        ],
    )
    phases = read_nsys_sqlite(path).phases.set_index("path")
    assert phases.loc["request", ["num_kernels", "kernel_ns", "num_ranges"]].tolist() == [
        380,
        2_184_310,
        2,
    ]


def test_open_and_cross_thread_ranges_are_counted_and_left_out(tmp_path):
    path = edited(
        "decode_eager.sqlite",
        tmp_path,
        [
            "UPDATE NVTX_EVENTS SET \"end\" = NULL WHERE text = 'mlp'",
            "UPDATE NVTX_EVENTS SET eventType = 60, endGlobalTid = globalTid + 1 "
            "WHERE text = 'attention'",
        ],
    )
    tables = read_nsys_sqlite(path)
    messages = {w.code: w.message for w in tables.warnings}
    assert messages["unclosed_ranges"].startswith("10 ranges")
    assert messages["cross_thread_ranges"].startswith("10 start/end ranges")
    assert set(by_last_name(path)) == {
        "BENCHMARK",
        "forward",
        *(f"iteration_{i}" for i in range(5)),
    }


def test_two_threads_with_equal_ranges_leave_backward_unclaimed(tmp_path):
    copy = (
        'INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId) '
        'SELECT start, "end", 59, text, globalTid + 1, 0 FROM NVTX_EVENTS WHERE eventType = 59'
    )
    tables = read_nsys_sqlite(edited("train_bf16.sqlite", tmp_path, [copy]))
    assert any(w.code == "ambiguous_ranges" for w in tables.warnings)
    backward = tables.phases[tables.phases["path"].str.endswith("/backward")]
    assert backward["num_kernels"].sum() == 2


def test_another_threads_side_range_does_not_take_backward_away(tmp_path):
    side = (
        'INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId) '
        "SELECT start, \"end\", 59, 'loader', globalTid + 1, 0 FROM NVTX_EVENTS "
        "WHERE text = 'BENCHMARK'"
    )
    found = by_last_name(edited("train_bf16.sqlite", tmp_path, [side]))
    assert found["backward"][:2] == (1872, 9_272_899)
    assert found["loader"][:2] == (0, 0)


def test_without_api_calls_the_device_time_decides_and_says_so(tmp_path):
    path = edited("decode_eager.sqlite", tmp_path, ["DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME"])
    tables = read_nsys_sqlite(path)
    assert any(w.code == "ranges_by_device_time" for w in tables.warnings)
    assert set(tables.phases["attribution"]) == {"device_time"}
    assert tables.gaps["cause"].tolist() == ["unknown"]
    assert "num_kernels_without_launch" not in tables.summary


def test_a_librarys_range_on_autograds_thread_does_not_take_kernels_from_backward(tmp_path):
    (tid,), *_ = rows(
        NSYS / "train_bf16.sqlite",
        "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY 1 ORDER BY count(*) DESC",
    )
    inside = "FROM NVTX_EVENTS WHERE text = 'backward'"
    insert = 'INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId) '
    path = edited(
        "train_bf16.sqlite",
        tmp_path,
        [
            f"{insert} VALUES (0, NULL, 75, 'NCCL', {tid}, 5)",
            f"{insert} SELECT start, \"end\", 59, 'ncclAllReduce', {tid}, 5 {inside}",
        ],
    )
    found = by_last_name(path)
    assert found["backward"][:2] == (1872, 9_272_899)
    assert found["NCCL:ncclAllReduce"][0] == 1870


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ANALYSIS_DETAILS SET duration = 20000000",
        "UPDATE NVTX_EVENTS SET \"end\" = NULL WHERE text = 'BENCHMARK'",
        "UPDATE NVTX_EVENTS SET start = -5000000 WHERE text = 'BENCHMARK'",
        'UPDATE NVTX_EVENTS SET "end" = (SELECT duration FROM ANALYSIS_DETAILS) '
        "WHERE text = 'BENCHMARK'",
    ],
)
def test_a_window_shorter_than_the_labelled_phase_is_said(tmp_path, statement):
    path = edited("decode_eager.sqlite", tmp_path, [statement])
    messages = [w.message for w in read_nsys_sqlite(path).warnings]
    said = [m for m in messages if "covers only part of these ranges: BENCHMARK" in m]
    assert len(said) == 1


def test_capture_and_event_window_stand_side_by_side():
    summary = read_nsys_sqlite(NSYS / "decode_eager.sqlite").summary
    assert summary["capture_window_ns"] == 26_344_438
    assert summary["event_window_ns"] == 25_863_399 - 12_764_690
