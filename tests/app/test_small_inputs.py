"""Files made by hand through the command line: import, show and compare give what arithmetic does.

Each case is a sibling of a small file that was read or judged wrongly once.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from tests.analysis.readers.nsys_files import edited, rows
from tests.app.made_inputs import launched, sized, span, summed, table, trace

US = 1000
Files = list[Path]


@pytest.fixture
def cli(
    tmp_path: Path, migrated: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    (tmp_path / "data").mkdir()
    shutil.copy(migrated, tmp_path / "data" / "warpboard.db")

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(["--data", str(tmp_path / "data"), *map(str, words)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


@pytest.fixture
def shown(cli: Any) -> Callable[..., dict[str, Any]]:
    """Import files as one run and return its document."""

    def show(*files: Path, **options: object) -> dict[str, Any]:
        name = f"run {next(NUMBERS)}"
        code, out, err = cli("import", *files, "--name", name, *options.get("words", ()))
        assert code == 0, out + err
        document: dict[str, Any] = json.loads(cli("show", name, "--json")[1])
        return document

    return show


NUMBERS = iter(range(1000))


def refused(cli: Any, *files: Path) -> str:
    code, out, err = cli("import", *files)
    assert code != 0, out
    assert "Traceback" not in err
    return str(err + out)


def kernels(document: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {k["name"]: (k["count"], k["total_ns"]) for k in document["kernels"]}


def copies(document: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    return {t["kind"]: (t["count"], t["total_ns"], t.get("bytes")) for t in document["transfers"]}


# Steps: what an iteration is.


def steps(count: int, *, first: int = 7, period: float = 900.0, busy: float = 70.0) -> list[Any]:
    """`count` steps of `period` us, each with 3 kernels of `busy` us."""
    events = []
    for i in range(count):
        begin = i * period
        events.append(span("user_annotation", f"ProfilerStep#{first + i}", begin, period))
        for j in range(3):
            at = begin + 40 + 200 * j
            events += launched(f"gemm_{j}", at, busy, 10 * i + j + 1, at=at - 20)
    return events


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_kernel_time_of_an_iteration_does_not_depend_on_the_number_of_steps(
    tmp_path: Path, shown: Any, count: int
) -> None:
    found = shown(trace(tmp_path / "t.json", steps(count)))

    assert found["summary"]["kernel_time_ns"] == count * 3 * 70 * US
    assert found["summary"]["iteration_kernel_ns"] == 3 * 70 * US
    assert found["steps"]["count"] == count


def test_traces_of_other_numbers_of_equal_steps_compare_as_equal(
    tmp_path: Path, cli: Any, shown: Any
) -> None:
    for name, count in (("two", 2), ("six", 6)):
        cli("import", trace(tmp_path / f"{name}.json", steps(count)), "--name", name)

    found = json.loads(cli("compare", "two", "six", "--metric", "kernel_time", "--json")[1])

    assert found["ratio"] == 1


def test_start_up_before_the_steps_is_in_no_figure_of_a_step(tmp_path: Path, shown: Any) -> None:
    events = launched("start_up", -9000, 8000, 900, at=-9500) + steps(2)

    found = shown(trace(tmp_path / "t.json", events))

    assert found["summary"]["kernel_time_ns"] == (8000 + 2 * 210) * US
    assert found["steps"]["kernel_ns"] == found["summary"]["iteration_kernel_ns"] == 210 * US


@pytest.mark.parametrize("own", ["iteration_{}", "step {}", "denoise/{}"])
def test_numbered_ranges_inside_steps_do_not_count_twice(
    tmp_path: Path, shown: Any, own: str
) -> None:
    inner = [
        span("user_annotation", own.format(4 * i + j), 900 * i + 10 + 200 * j, 150)
        for i in range(2)
        for j in range(4)
    ]

    found = shown(trace(tmp_path / "t.json", steps(2) + inner))

    assert found["steps"]["count"] == 2
    assert found["summary"]["iteration_kernel_ns"] == 210 * US


def test_a_step_without_kernels_is_left_out(tmp_path: Path, shown: Any) -> None:
    empty = [span("user_annotation", "ProfilerStep#9", 1800, 900)]

    found = shown(trace(tmp_path / "t.json", steps(2) + empty))

    assert (found["steps"]["count"], found["steps"]["num_excluded"]) == (3, 1)
    assert found["steps"]["kernel_ns"] == 210 * US


def test_kernels_that_run_after_their_step_count_in_the_step_that_launched_them(
    tmp_path: Path, shown: Any
) -> None:
    events = [span("user_annotation", f"ProfilerStep#{i}", 500 * i, 500) for i in range(2)]
    events += launched("late", 480, 100, 1, at=450) + launched("late", 1020, 100, 2, at=950)

    found = shown(trace(tmp_path / "t.json", events))

    assert found["steps"]["kernel_ns"] == 100 * US


# Threads, ranks and ranges.


def test_kernels_of_the_autograd_thread_are_of_the_step_that_holds_their_launch(
    tmp_path: Path, shown: Any
) -> None:
    events = []
    for i in range(3):
        events.append(span("user_annotation", f"ProfilerStep#{i}", 1000 * i, 1000, tid=5))
        events += launched("forward", 1000 * i + 50, 20, 2 * i + 1, tid=5)
        events += launched("backward", 1000 * i + 400, 55, 2 * i + 2, tid=77)

    found = shown(trace(tmp_path / "t.json", events))

    assert found["steps"]["kernel_ns"] == 75 * US
    assert found["summary"]["num_kernels"] == 6


def test_ranks_merged_with_whole_numbers_as_pids_are_told_apart(tmp_path: Path, shown: Any) -> None:
    events: list[Any] = []
    for rank, (pid, gpu_pid) in enumerate(((300, 0), (20_300, 20_000), (40_300, 40_001))):
        for i in range(2):
            number = 100 * rank + i + 1
            begin = 1000 * i + 100
            host = {"pid": pid, "tid": pid, "rank": rank}
            events.append(span("user_annotation", f"ProfilerStep#{i}", 1000 * i, 900, **host))
            call, kernel = launched(
                "ncclDevKernel_AllReduce", begin, 200 + rank, number, pid=pid, tid=pid
            )
            call["args"]["rank"] = kernel["args"]["rank"] = rank
            kernel["pid"] = gpu_pid
            kernel["args"]["device"] = rank
            events += [call, kernel]

    found = shown(trace(tmp_path / "t.json", events))

    assert found["summary"]["kernel_time_ns"] == 2 * (200 + 201 + 202) * US
    assert sorted(r["kernel_time_ns"] for r in found["ranks"]) == [400 * US, 402 * US, 404 * US]


def test_a_name_with_a_slash_and_nested_ranges_of_these_names_are_two(
    tmp_path: Path, shown: Any
) -> None:
    events = [span("user_annotation", "block/attn/qkv", 0, 100)]
    events += launched("one", 20, 11, 1)
    events += [
        span("user_annotation", n, 200 + d, 100 - 2 * d)
        for d, n in enumerate(("block", "attn", "qkv"))
    ]
    events += launched("two", 230, 31, 2)

    found = shown(trace(tmp_path / "t.json", events))

    whole = {p["path"]: p["kernel_ns"] for p in found["phases"]}
    assert sorted(whole.values()) == [11 * US, 31 * US, 31 * US, 31 * US]


def test_launches_of_a_graph_capture_are_no_lost_kernels(tmp_path: Path, shown: Any) -> None:
    events = launched("eager", 20, 9, 1)
    events.append(span("cuda_runtime", "cudaStreamBeginCapture", 100, 1, correlation=50))
    for i in range(4):
        events.append(span("cuda_runtime", "cudaLaunchKernel", 110 + 5 * i, 1, correlation=60 + i))
    events.append(span("cuda_runtime", "cudaStreamEndCapture", 140, 1, correlation=51))
    events += launched("eager", 200, 9, 2)

    found = shown(trace(tmp_path / "t.json", events))

    assert found["summary"]["num_kernels"] == 2
    assert "cut off" not in json.dumps(found["warnings"])
    assert found["summary"]["num_launches_without_kernel"] == 0


# Odd JSON.


@pytest.mark.parametrize("word", ["Infinity", "-Infinity", "NaN", "inf", "-inf", "nan", "+nan"])
def test_a_bare_word_for_a_number_in_an_unused_argument_is_read_over(
    tmp_path: Path, shown: Any, word: str
) -> None:
    path = trace(tmp_path / "t.json", launched("saxpy", 20, 41, 1))
    path.write_text(path.read_text().replace('"grid"', f'"occupancy": {word}, "grid"'))

    assert kernels(shown(path)) == {"saxpy": (1, 41 * US)}


@pytest.mark.parametrize("last", [{}, {"ph": "M"}, {"args": {}}])
def test_an_empty_last_event_changes_nothing(tmp_path: Path, shown: Any, last: Any) -> None:
    events = launched("fusion", 20, 43, 1)

    assert kernels(shown(trace(tmp_path / "t.json", [*events, last]))) == {"fusion": (1, 43 * US)}


# Reports of `nsys stats`.


@pytest.mark.parametrize(
    ("unit", "scale"), [("ns", 1), ("us", 1e3), ("μs", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)]
)
def test_times_of_every_unit_are_the_same_time(
    tmp_path: Path, shown: Any, unit: str, scale: float
) -> None:
    times = {"ampere_sgemm_64x64_nn": (4, 36e9 / scale), "softmax": (2, 4e9 / scale)}
    path = tmp_path / "k.csv"
    path.write_text(summed(times, unit=unit), encoding="utf-8")

    expected = {"ampere_sgemm_64x64_nn": (4, 36 * 10**9), "softmax": (2, 4 * 10**9)}
    assert kernels(shown(path)) == expected


@pytest.mark.parametrize("unit", ["fortnights", "fs", "h"])
def test_a_unit_that_is_not_known_is_named(tmp_path: Path, cli: Any, unit: str) -> None:
    path = tmp_path / "k.csv"
    path.write_text(summed({"gemm": (4, 10)}, unit=unit))

    assert unit in refused(cli, path)


KERNELS = {"cutlass_80_gemm": (5, 5000), "void layer_norm<float>(float*)": (2, 300)}
COPIES = {"[CUDA memcpy Host-to-Device]": (3, 90), "[CUDA memset]": (7, 70)}
CALLS = {"cudaLaunchKernel": (9, 900)}
CATEGORY = (
    dict.fromkeys(KERNELS, "CUDA_KERNEL")
    | dict.fromkeys(COPIES, "MEMORY_OPER")
    | dict.fromkeys(CALLS, "CUDA_API")
)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("calls", [{}, CALLS])
def test_kernels_copies_and_calls_of_one_report_are_told_apart(
    tmp_path: Path, shown: Any, order: int, calls: dict[str, Any]
) -> None:
    lines = [*(KERNELS | COPIES | calls).items()][::order]
    path = tmp_path / "sum.csv"
    path.write_text(summed(dict(lines), last="Operation", category=CATEGORY))

    found = shown(path)

    assert kernels(found) == KERNELS
    assert {k: v[:2] for k, v in copies(found).items()} == {"HtoD": (3, 90), "memset": (7, 70)}
    assert {c["name"]: c["count"] for c in found["api_calls"]} == {
        n: c for n, (c, _) in calls.items()
    }


def test_calls_of_mpi_are_no_kernels(tmp_path: Path, shown: Any) -> None:
    path = tmp_path / "mpi.csv"
    calls = {"MPI_Bcast": (3, 700), "MPI_Recv": (5, 300)}
    path.write_text(
        summed(calls, category=dict.fromkeys(calls, "p2p")).replace("Category", "Source")
    )

    found = shown(path)

    assert kernels(found) == {}
    assert {c["name"]: (c["count"], c["total_ns"]) for c in found["api_calls"]} == calls


UM = {
    "[CUDA Unified Memory memcpy DtoH]": (11, 1100),
    "[CUDA Unified Memory memcpy HtoD]": (40, 8000),
}
UM_SIZES = {
    "[CUDA Unified Memory memcpy DtoH]": (11, 22.0),
    "[CUDA Unified Memory memcpy HtoD]": (40, 640.0),
}


@pytest.mark.parametrize(("unit", "scale"), [("MB", 1.0), ("KB", 1e3), ("MiB", 1e6 / 2**20)])
def test_managed_memory_keeps_both_directions(
    tmp_path: Path, shown: Any, unit: str, scale: float
) -> None:
    path = tmp_path / "um.csv"
    sizes = {name: (count, total * scale) for name, (count, total) in UM_SIZES.items()}
    times = summed(UM, count="Count", last="Operation")
    path.write_text(times + "\n" + sized(sizes, unit))

    found = copies(shown(path))

    assert sorted(v[:2] for v in found.values()) == [(11, 1100), (40, 8000)]
    assert sorted(v[2] for v in found.values()) == pytest.approx(
        [22_000_000, 640_000_000], rel=1e-5
    )


@pytest.mark.parametrize("order", [1, -1])
def test_times_and_sizes_in_two_files_are_one_table(tmp_path: Path, shown: Any, order: int) -> None:
    names = {"[CUDA memcpy Device-to-Device]": (6, 480), "[CUDA memcpy Device-to-Host]": (2, 50)}
    sizes = {"[CUDA memcpy Device-to-Device]": (6, 36.0), "[CUDA memcpy Device-to-Host]": (2, 1.0)}
    times, amounts = tmp_path / "r_time_sum.csv", tmp_path / "r_size_sum.csv"
    times.write_text(summed(names, count="Count", last="Operation"))
    amounts.write_text(sized(sizes))

    found = copies(shown(*[times, amounts][::order]))

    assert found == {"DtoD": (6, 480, 36_000_000), "DtoH": (2, 50, 1_000_000)}


# Tables of latencies.


@pytest.mark.parametrize(
    ("heads", "row"),
    [
        (("stddev_ms", "avg_ms"), (0.2, 3.1)),
        (("latency_std", "latency_mean"), (0.2, 3.1)),
        (("p99_ms", "p50_ms"), (4.2, 3.1)),
        (("min_latency_us", "max_latency_us"), (3100, 4200)),
    ],
)
def test_a_table_of_summaries_alone_is_refused_with_its_columns(
    tmp_path: Path, cli: Any, heads: tuple[str, ...], row: tuple[float, ...]
) -> None:
    path = tmp_path / "lat.csv"
    path.write_text(table([("batch", *heads), (1, *row), (8, *(3 * x for x in row))]))

    told = refused(cli, path)

    assert any(head in told for head in heads)


@pytest.mark.parametrize(
    "heads",
    [("latency",), ("time_s",), ("forward_ms", "backward_ms"), ("request", "ttft_ms", "e2e (ms)")],
)
def test_a_table_whose_times_are_not_called_latency_names_them_and_the_remedy(
    tmp_path: Path, cli: Any, heads: tuple[str, ...]
) -> None:
    path = tmp_path / "times.csv"
    path.write_text(table([heads, *([i + 1.5] * len(heads) for i in range(3))]))

    told = refused(cli, path)

    assert heads[-1] in told and "latency_ms" in told


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_sweep_is_never_one_run_of_mixed_samples(
    tmp_path: Path, cli: Any, delimiter: str
) -> None:
    path = tmp_path / "sweep.csv"
    cells = [("model", "tokens", "latency_ms")]
    cells += [(m, t, 1 + t / 100) for m in ("a", "b") for t in (64, 128)]
    path.write_text(table(cells, delimiter))

    told = refused(cli, path)

    assert "model" in told and "tokens" in told


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize(("unit", "scale"), [("ms", 1.0), ("us", 1e3), ("ns", 1e6), ("s", 1e-3)])
def test_latencies_of_every_encoding_and_unit_are_the_same(
    tmp_path: Path, shown: Any, encoding: str, unit: str, scale: float
) -> None:
    path = tmp_path / "lat.csv"
    path.write_bytes(
        table([(f"latency_{unit}",), *((x * scale,) for x in (2.5, 3.5, 9.5))]).encode(encoding)
    )

    latency = shown(path)["summary"]["latency_ms"]

    assert (latency["n"], latency["median"]) == (3, pytest.approx(3.5))


def test_ranks_of_one_job_are_one_sample(tmp_path: Path, cli: Any) -> None:
    for name, factor in (("a", 1.0), ("b", 1.3)):
        cells: list[Any] = [("rank", "iteration", "latency_ms")]
        cells += [(r, i, factor * (5 + 0.01 * ((r + i) % 3))) for r in range(4) for i in range(12)]
        (tmp_path / f"{name}.csv").write_text(table(cells))
        cli("import", tmp_path / f"{name}.csv", "--name", name)

    found = json.loads(cli("compare", "a", "b", "--json")[1])

    assert found["verdict"] == "not_enough_samples"
    assert found["ratio"] == pytest.approx(1.3)
    assert "1 against 1 process" in found["reason"]


# Verdicts and the gate.


def latency_of(path: Path, levels: list[float], unit: str = "ms") -> Path:
    """Write processes at these levels, 20 samples each within 0.5 %."""
    cells: list[Any] = [("process", f"latency_{unit}")]
    cells += [(p, v * (1 + 0.001 * ((7 * i) % 5))) for p, v in enumerate(levels) for i in range(20)]
    path.write_text(table(cells))
    return path


@pytest.mark.parametrize(
    ("a", "b", "code", "verdict"),
    [
        ([5.0], [15.0], 4, "not_enough_samples"),
        ([5.0, 5.02, 5.01], [15.0, 15.1, 15.05], 1, "slower"),
        ([5.0, 5.02], [15.0, 15.03], 1, "slower"),
        ([15.0, 15.1, 15.05], [5.0, 5.02, 5.01], 0, "faster"),
        ([5.0, 5.02, 5.01, 5.03, 4.99], [5.01, 5.0, 5.02, 4.99, 5.03], 0, "no_difference"),
    ],
)
def test_more_processes_never_weaken_a_verdict_and_the_gate_says_when_it_cannot_tell(
    tmp_path: Path, cli: Any, a: list[float], b: list[float], code: int, verdict: str
) -> None:
    for name, levels in (("a", a), ("b", b)):
        cli("import", latency_of(tmp_path / f"{name}.csv", levels), "--name", name)
    gate = ("--fail-above", "5", "--on-inconclusive", "fail")

    found = cli("compare", "a", "b", "--json", *gate)

    assert (found[0], json.loads(found[1])["verdict"]) == (code, verdict)


def test_one_latency_stands_for_a_run_in_every_unit(tmp_path: Path, cli: Any, shown: Any) -> None:
    levels = [2.0, 3.0, 9.0]
    document = shown(latency_of(tmp_path / "us.csv", [1000 * v for v in levels], "us"))
    cli("import", latency_of(tmp_path / "ms.csv", levels), "--name", "ms")

    found = json.loads(cli("compare", "ms", document["run"]["name"], "--json")[1])

    median = document["summary"]["latency_ms"]["median"]
    assert median == pytest.approx(3.0 * 1.002)  # the middle process of three, its middle sample
    assert found["a"]["median"] == pytest.approx(median)
    assert found["ratio"] == pytest.approx(1.0)


# Databases.


def test_a_database_of_nvprof_is_refused_by_name(tmp_path: Path, cli: Any) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY,"
            " start INT, end INT, name INT, gridX INT)"
        )
        db.execute("INSERT INTO StringTable VALUES (1, 'vector_add')")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES (1, 5, 9, 1, 64)")

    assert "nvprof" in refused(cli, path)


@pytest.mark.parametrize("count", [1, 5])
def test_records_without_a_time_are_no_kernel_time(tmp_path: Path, shown: Any, count: int) -> None:
    table_name = "CUPTI_ACTIVITY_KIND_KERNEL"
    statement = (
        f'UPDATE {table_name} SET start = 0, "end" = 0 WHERE rowid IN'
        f" (SELECT rowid FROM {table_name} ORDER BY start LIMIT {count})"
    )
    capture = edited("decode_eager.sqlite", tmp_path, [statement])
    ((num, total),) = rows(
        capture, f'SELECT count(*), sum("end" - start) FROM {table_name} WHERE "end" > 0'
    )

    found = shown(capture)["summary"]

    assert (found["num_kernels"], found["kernel_time_ns"]) == (num, total)
