"""ncu's tables of any page, locale and version give the same numbers, or one clear refusal."""

import csv
import gzip
import io
import math
from pathlib import Path

import pandas as pd
import pytest

from analysis.readers import read
from analysis.readers.ncu.table import unit_scale
from analysis.tables import COUNTER_COLUMNS, RULE_COLUMNS, CaptureTables
from core.errors import CaptureError

NCU = Path(__file__).resolve().parents[2] / "data" / "h100" / "ncu"
HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
ROW = '"{id}","1","a.out","127.0.0.1","k(int, float)","1","7","(64, 1, 1)","(4, 1, 1)","0","8.6"'


def _details(*metrics: tuple[str, str, str], launch: int = 0) -> str:
    rows = [ROW.format(id=launch) + f',"S","{n}","{u}","{v}"' for n, u, v in metrics]
    return "\n".join([HEAD, *rows]) + "\n"


def _read(tmp_path: Path, text: str) -> CaptureTables:
    path = tmp_path / "profile.csv"
    path.write_text(text, encoding="utf-8")
    return read(path)


def _codes(tables: CaptureTables) -> set[str]:
    return {w.code for w in tables.warnings}


@pytest.fixture(scope="module")
def raw() -> CaptureTables:
    return read(NCU / "decode_eager.raw.csv")


@pytest.fixture(scope="module")
def details() -> CaptureTables:
    return read(NCU / "decode_eager.details.csv.gz")


def test_raw_page_has_a_row_a_launch_in_base_units(raw: CaptureTables) -> None:
    assert tuple(raw.counters.columns) == COUNTER_COLUMNS
    assert len(raw.counters) == 38
    first = raw.counters.iloc[0]
    assert first["duration_ns"] == 5120
    assert first["dram_bytes"] == 40448
    assert first["dram_pct"] == 0.237266
    assert first["grid"] == "8,1,1" and first["block"] == "128,1,1" and first["registers"] == 32
    assert first["short_name"] == "unrolled_elementwise_kernel"
    assert first["path"] == "BENCHMARK/iteration_0/forward/attention"
    assert raw.gpu == {"compute_capability": "9.0", "num_sms": 132, "name": "NVIDIA H100 80GB HBM3"}


def test_raw_page_agrees_with_a_plain_reading_of_its_columns(raw: CaptureTables) -> None:
    rows = list(csv.reader((NCU / "decode_eager.raw.csv").open()))
    column = rows[0].index("gpu__time_duration.sum")
    assert rows[1][column] == "us"
    expected = [round(float(r[column].replace(",", "")) * 1000) for r in rows[2:]]
    assert raw.counters["duration_ns"].round().astype(int).tolist() == expected


def test_traffic_of_the_l2_cache_is_that_of_its_sectors(raw: CaptureTables) -> None:
    rows = list(csv.reader((NCU / "decode_eager.raw.csv").open()))
    sectors = rows[0].index("lts__t_sectors.sum")
    share = rows[0].index("lts__t_sectors.sum.pct_of_peak_sustained_elapsed")
    expected = [32 * float(r[sectors].replace(",", "")) for r in rows[2:]]
    assert raw.counters["l2_bytes"].tolist() == pytest.approx(expected)
    peak = expected[9] / (raw.counters["duration_ns"][9] * 1e-9) / (float(rows[11][share]) / 100)
    assert raw.counters["peak_l2_bytes_per_s"][9] == pytest.approx(peak)


def test_both_pages_of_one_capture_agree(raw: CaptureTables, details: CaptureTables) -> None:
    for column in ("duration_ns", "sm_pct", "memory_pct", "dram_pct", "l2_pct", "occupancy_pct"):
        pd.testing.assert_series_equal(
            raw.counters[column], details.counters[column], rtol=0.01, atol=0.006
        )
    assert raw.counters["name"].tolist() == details.counters["name"].tolist()


def test_rules_carry_their_estimated_speedup(details: CaptureTables) -> None:
    assert tuple(details.rules.columns) == RULE_COLUMNS
    assert len(details.rules) == 315
    pipes = details.rules[details.rules["rule"] == "HighPipeUtilization"].iloc[0]
    assert pipes["estimated_speedup_pct"] == 99.93
    assert math.isnan(details.rules.iloc[0]["estimated_speedup_pct"])


@pytest.mark.parametrize(
    ("decimal", "group"),
    [(".", ","), (",", "."), (",", " "), (",", "\u202f"), (",", "\u00a0"), (".", "'"), (".", "")],
)
def test_every_locale_of_the_real_table_gives_the_same(
    decimal: str, group: str, details: CaptureTables, tmp_path: Path
) -> None:
    text = gzip.decompress((NCU / "decode_eager.details.csv.gz").read_bytes()).decode()
    rows = list(csv.reader(io.StringIO(text)))
    value = rows[0].index("Metric Value")
    marks = str.maketrans({",": group, ".": decimal})
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(rows[0])
    writer.writerows([*r[:value], r[value].translate(marks), *r[value + 1 :]] for r in rows[1:])
    tables = _read(tmp_path, out.getvalue())
    pd.testing.assert_frame_equal(tables.counters, details.counters)


def test_elapsed_cycles_are_kept(raw: CaptureTables, details: CaptureTables) -> None:
    assert raw.counters["elapsed_cycles"].iloc[0] == 10180
    assert details.counters["elapsed_cycles"].tolist() == raw.counters["elapsed_cycles"].tolist()


def test_table_of_a_filter_that_matched_nothing_is_a_state(tmp_path: Path) -> None:
    tables = _read(tmp_path, f"==WARNING== No kernels were profiled.\n{HEAD}\n")
    assert tables.counters.empty
    assert "no_kernels_profiled" in _codes(tables)


def test_number_that_nothing_decides_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"profile\.csv: '567\.961' can be read"):
        _read(tmp_path, _details(("Elapsed Cycles", "cycle", "567.961")))


def test_what_ncu_says_twice_decides(tmp_path: Path) -> None:
    text = _details(("Duration", "us", "1.024"), ("Threads", "", "1.024"))
    assert _read(tmp_path, text).counters["duration_ns"].tolist() == [1_024_000]


def test_mixed_styles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="two styles"):
        _read(tmp_path, _details(("Duration", "us", "4,35"), ("Memory Throughput", "%", "6.1")))


def test_units_are_read_in_each_row(tmp_path: Path) -> None:
    text = _details(("Duration", "msecond", "1.25")) + _details(
        ("Duration", "nsecond", "640.5"), launch=1
    ).removeprefix(HEAD + "\n")
    assert _read(tmp_path, text).counters["duration_ns"].tolist() == [1_250_000, 640.5]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("usecond", (1e3, "ns")),
        ("Kbyte/block", (1e3, "byte/block")),
        ("Gbyte/second", (1e9, "byte/s")),
        ("byte/second", (1.0, "byte/s")),
        ("cycle/nsecond", (1e9, "cycle/s")),
        ("Ghz", (1e9, "cycle/s")),
        ("%", (1.0, "%")),
        ("", (1.0, "")),
    ],
)
def test_units_of_every_version(unit: str, expected: tuple[float, str]) -> None:
    assert unit_scale(unit) == expected


def test_missing_values_are_absent_not_zero(tmp_path: Path) -> None:
    row = _read(tmp_path, _details(("Duration", "us", "4.35"), ("DRAM Throughput", "", "n/a")))
    first = row.counters.iloc[0]
    assert math.isnan(first["dram_pct"]) and math.isnan(first["flops"])
    assert math.isnan(first["dram_bytes"]) and pd.isna(first["registers"])


def test_flops_follow_the_roofline_formula(tmp_path: Path) -> None:
    op = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    text = _details(
        ("gpu__time_duration.sum", "us", "100.5"),
        (op.format("fadd"), "inst/cycle", "0.143"),
        (op.format("fmul"), "inst/cycle", "0"),
        (op.format("ffma"), "inst/cycle", "146.18"),
        ("sm__cycles_elapsed.avg", "cycle", "1000.5"),
        ("dram__bytes_read.sum", "Mbyte", "146.5"),
        ("dram__bytes_write.sum", "Kbyte", "500.5"),
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "41.5"),
    )
    first = _read(tmp_path, text).counters.iloc[0]
    assert first["flops"] == pytest.approx((2 * 146.18 + 0.143) * 1000.5)
    assert first["dram_bytes"] == 147_000_500
    assert first["dram_pct"] == 41.5


def test_tensor_core_work_that_was_not_counted_makes_flops_unknown(raw: CaptureTables) -> None:
    gemm = raw.counters["short_name"].str.startswith("nvjet")
    assert gemm.any() and raw.counters.loc[gemm, "flops"].isna().all()


def test_messages_and_output_between_rows_are_set_aside(tmp_path: Path) -> None:
    text = _details(("Duration", "us", "4.35"), ("Threads", "", "256"))
    first, second, third = text.splitlines()
    noisy = f"==PROF== Connected\n1,2,3\n{first}\n{second}\nMatrix FAILED\n==WARNING== x\n{third}\n"
    tables = _read(tmp_path, noisy)
    assert tables.counters["duration_ns"].tolist() == [4350]
    assert "wrong_results" in _codes(tables)


def test_short_rows_without_the_value_and_cut_files_are_refused(tmp_path: Path) -> None:
    text = _details(("Duration", "us", "4.35"))
    with pytest.raises(CaptureError, match=r"line 3 has 11 columns"):
        _read(tmp_path, text + ROW.format(id=1) + "\n")
    with pytest.raises(CaptureError, match="ends within a row"):
        _read(tmp_path, text[:-4])


def test_lost_launches_are_said(tmp_path: Path) -> None:
    text = _details(("Duration", "us", "4.35")) + _details(
        ("Duration", "us", "5.25"), launch=3
    ).removeprefix(HEAD + "\n")
    assert "incomplete_table" in _codes(_read(tmp_path, text))


def test_values_that_contradict_each_other_are_said(tmp_path: Path) -> None:
    text = _details(
        ("Duration", "us", "431.65"),
        ("Elapsed Cycles", "cycle", "56,796"),
        ("SM Frequency", "Ghz", "1.32"),
    )
    assert "inconsistent_counters" in _codes(_read(tmp_path, text))


def test_two_processes_that_count_alike_are_both_kept_and_said(tmp_path: Path) -> None:
    header, units, *launches = csv.reader((NCU / "decode_eager.raw.csv").read_text().splitlines())
    again = [[row[0], "9999", *row[2:]] for row in launches]
    path = tmp_path / "two.csv"
    with path.open("w", newline="") as out:
        csv.writer(out, quoting=csv.QUOTE_ALL).writerows([header, units, *launches, *again])
    tables = read(path)
    assert tables.counters is not None
    assert tables.counters["launch"].tolist() == list(range(2 * len(launches)))
    assert "several_processes" in {w.code for w in tables.warnings}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"])
def test_shells_encodings_and_line_ends_change_nothing(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path = tmp_path / "shell.csv"
    path.write_bytes(
        (mark + (NCU / "decode_eager.raw.csv").read_text().replace("\n", "\r\n")).encode(encoding)
    )
    whole, found = read(NCU / "decode_eager.raw.csv").counters, read(path).counters
    assert whole is not None and found is not None
    pd.testing.assert_frame_equal(whole, found)


@pytest.mark.parametrize("instances", ["(40.25; 12.5; 9)", "(0: 40.25; 1: 12.5)"])
def test_values_of_instances_behind_a_value_do_not_hide_it(tmp_path: Path, instances: str) -> None:
    tables = _read(tmp_path, _details(("Achieved Occupancy", "%", f"40.25 {instances}")))
    assert tables.counters["occupancy_pct"].tolist() == [40.25]


def test_a_table_that_is_there_twice_is_said(tmp_path: Path) -> None:
    text = _details(("Duration", "us", "2.5"))
    warning = next(w for w in _read(tmp_path, text + text).warnings if "repeat" in w.message)
    assert "several tables" in warning.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_details(("Duration", "us", "1e400")), "larger than any number"),
        (_details(("Duration", "us", "1")).replace('"Kernel Name"', '"Kernel"', 1), "no kernel"),
        (_details(("Duration", "us", "1")).replace('"Metric Unit"', '"Unit"', 1), "is damaged"),
    ],
)
def test_infinite_values_and_headers_without_kernels_are_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(CaptureError, match=says):
        _read(tmp_path, text)
