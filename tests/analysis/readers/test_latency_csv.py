"""A user's own latency table becomes samples; odd rows are named, never shifted."""

from pathlib import Path

import pytest

from analysis.readers import read
from analysis.tables import SAMPLE_COLUMNS
from core.errors import CaptureError


def _read(tmp_path: Path, text: str):
    path = tmp_path / "bench.csv"
    path.write_text(text, encoding="utf-8")
    return read(path)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("latency_ms", "2.5"),
        ("latency_us", "2500"),
        ("latency_s", "0.0025"),
        ("latency_ns", "2500000"),
        ("Latency (ms)", "2.5"),
        ("latency [us]", "2500.0"),
        ("mean_latency_ms", "2.5e0"),
    ],
)
def test_every_unit_gives_nanoseconds(header: str, value: str, tmp_path: Path) -> None:
    tables = _read(tmp_path, f"model,{header}\na,{value}\na,{value}\n")
    assert tuple(tables.samples.columns) == SAMPLE_COLUMNS
    assert tables.samples["latency_ns"].tolist() == [2_500_000, 2_500_000]


def test_processes_are_numbered_and_iterations_kept(tmp_path: Path) -> None:
    tables = _read(tmp_path, "process,iteration,latency_ms\n901,0,1\n901,1,2\n902,0,3\n902,1,4\n")
    assert tables.samples.to_numpy().tolist() == [
        [0, 0, 1_000_000],
        [0, 1, 2_000_000],
        [1, 0, 3_000_000],
        [1, 1, 4_000_000],
    ]


def test_longer_rows_and_words_are_left_out_with_their_lines(tmp_path: Path) -> None:
    tables = _read(tmp_path, "step,latency_ms\n1,1.0\n2,2.0,extra\n3,OOM\n4,4.0\n")
    assert tables.samples["latency_ns"].tolist() == [1_000_000, 4_000_000]
    (warning,) = tables.warnings
    assert warning.code == "rejected_rows"
    assert "line 3 has 3 columns" in warning.message
    assert "line 4: latency_ms is 'OOM'" in warning.message


@pytest.mark.parametrize("value", ["-1", "0", "1e30", "1e308", "inf", ""])
def test_a_table_without_one_latency_is_an_error(value: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"bench\.csv: .*line 2"):
        _read(tmp_path, f"a,latency_ms\nx,{value}\n")


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    tables = _read(tmp_path, "a;latency_ms\nx;2,5\nx;3,25\n")
    assert tables.samples["latency_ns"].tolist() == [2_500_000, 3_250_000]


def test_comma_that_may_group_thousands_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="decimal or a thousands"):
        _read(tmp_path, "a;latency_us\nx;2,512\ny;3,250\n")


def test_iterations_that_are_there_twice_are_numbered_by_their_order(tmp_path: Path) -> None:
    rows = "".join(f"{i},{1 + i}\n" for i in (0, 1, 0, 1))
    tables = _read(tmp_path, f"iteration,latency_ms\n{rows}")
    assert tables.samples["iteration"].tolist() == [0, 1, 2, 3]
    assert [w.code for w in tables.warnings] == ["repeated_iterations"]


def test_ranks_of_one_job_are_one_process(tmp_path: Path) -> None:
    path = tmp_path / "ranks.csv"
    rows = [f"{rank},{step},{10 + rank / 100}" for rank in range(8) for step in range(3)]
    path.write_text("\n".join(["rank,step,latency_ms", *rows]))

    found = read(path)

    assert found.samples["process"].unique().tolist() == [0]
    assert sorted(found.samples["iteration"]) == list(range(24))
    assert [w.code for w in found.warnings] == ["ranks_of_one_job"]


def test_launches_of_a_job_with_ranks_are_the_processes(tmp_path: Path) -> None:
    path = tmp_path / "launches.csv"
    rows = [f"{launch},{rank},10.5" for launch in "ab" for rank in range(4)]
    path.write_text("\n".join(["process,rank,latency_ms", *rows]))

    assert read(path).samples["process"].value_counts().to_dict() == {0: 4, 1: 4}


SUMMARIES = {
    "std first": ("batch_size,std_latency_ms,mean_latency_ms\n1,0.3,3.2\n", "std_latency_ms"),
    "only percentiles": ("p50_latency_ms,p99_latency_ms\n1,2\n", "p50_latency_ms, p99"),
    "other names": ("latency_ms,latency_std,latency_p95\n1,2,3\n", "latency_std, latency_p95"),
    "mean and median": ("mean_latency_us;median_latency_us\n1;2\n", "mean_latency_us, median"),
    "one percentile": ("model,p95_latency_ms\na,2\n", "p95_latency_ms"),
}


@pytest.mark.parametrize("case", SUMMARIES)
def test_a_table_of_summaries_is_refused_with_its_columns(case: str, tmp_path: Path) -> None:
    text, columns = SUMMARIES[case]
    with pytest.raises(CaptureError, match=f"summaries.*{columns}"):
        _read(tmp_path, text)


def test_two_latencies_without_a_plain_one_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(
        CaptureError, match=r"2 columns contain latencies .prefill_latency_ms, decode"
    ):
        _read(tmp_path, "prefill_latency_ms,decode_latency_ms\n1,2\n")


def test_the_plain_latency_is_taken_beside_another(tmp_path: Path) -> None:
    tables = _read(tmp_path, "gpu_latency_us,latency_ms\n1,2\n")
    assert tables.samples["latency_ns"].tolist() == [2_000_000]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("backend,latency_ms\neager,1\ncompile,2\n", "backend varies"),
        ("batch_size,seq_len,latency_ms\n1,64,1\n8,128,2\n", "batch_size, seq_len vary"),
        ("size,latency_ms\n1,1\n2,2\n3,3\n", "size varies"),
        ("process,dtype,latency_ms\n0,fp16,1\n1,fp32,2\n", "dtype varies"),
    ],
)
def test_a_sweep_is_refused_with_what_varies(text: str, columns: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=columns):
        _read(tmp_path, text)


def test_measurements_and_numbers_of_samples_may_differ(tmp_path: Path) -> None:
    text = "run,Timestamp,loss,tokens_per_s,GPU temp,latency_ms\n1,a,2.5,9,60,1\n2,b,2.4,8,61,2\n"
    assert len(_read(tmp_path, text).samples) == 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_text_of_powershell_and_spreadsheets_is_read(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.csv"
    path.write_bytes("process,latency_ms\r\n0,1.25\r\n0,1.27\r\n".encode(encoding))
    assert read(path).samples["latency_ns"].tolist() == [1_250_000, 1_270_000]
