import csv
import io
from pathlib import Path

import pytest

from analysis.merge import merged_captures
from analysis.readers import read
from analysis.readers.nsys.stats_csv import read_nsys_csv
from analysis.rundata import RunCapture
from core.errors import CaptureError
from core.states import Pass
from tests.analysis.readers.nsys_files import NSYS

KERNELS = (NSYS / "decode_eager.cuda_gpu_kern_sum.csv").read_text()
API = (NSYS / "decode_eager.cuda_api_sum.csv").read_text()


def written(folder, text, name="report.csv"):
    path = folder / name
    path.write_text(text)
    return path


def codes(tables):
    return {w.code for w in tables.warnings}


def test_kernel_summary_of_the_vendor():
    tables = read_nsys_csv(NSYS / "decode_eager.cuda_gpu_kern_sum.csv")
    assert dict(tables.summary) == {"num_kernels": 380, "kernel_time_ns": 2_184_310}
    assert tables.kernels.loc[0, ["count", "min_ns", "max_ns"]].tolist() == [50, 13408, 33665]


def test_api_summary_of_the_vendor():
    calls = read_nsys_csv(NSYS / "decode_eager.cuda_api_sum.csv").api_calls.set_index("name")
    assert calls.loc["cudaLaunchKernelExC", ["count", "total_ns"]].tolist() == [50, 396_903]
    assert bool(calls.loc["cudaDeviceSynchronize", "is_sync"])


def test_range_summary_knows_host_time_only():
    phases = read_nsys_csv(NSYS / "decode_eager.nvtx_sum.csv").phases.set_index("path")
    assert phases.loc["forward", ["num_ranges", "host_ns"]].tolist() == [5, 12_516_429]
    assert phases["kernel_ns"].isna().all()


def test_preamble_and_several_reports_in_one_file(tmp_path):
    text = (
        "NOTICE: Existing SQLite export found: /home/someone/x.sqlite\n"
        "Processing [/home/someone/x.sqlite] with [cuda_gpu_kern_sum.py]...\n\n"
        f" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n{KERNELS}\n"
        f" ** CUDA API Summary (cuda_api_sum):\n\n{API}\n"
        "SKIPPED: /home/someone/x.sqlite does not contain NV Tools Extension (NVTX) data.\n"
    )
    tables = read_nsys_csv(written(tmp_path, text))
    assert tables.summary["num_kernels"] == 380
    assert tables.api_calls["count"].sum() == 805
    assert "stale_export" in codes(tables)
    assert not any("someone" in w.message for w in tables.warnings)


def test_old_names_units_shapes_and_grouped_digits(tmp_path):
    text = (
        "Time(%),Total Time (us),Instances,Average,Minimum (us),Maximum (us),"
        "GridXYZ,BlockXYZ,Name\n"
        '60.0,"1,234.567",2,1,0.5,1234.067,"   2   64    1",128 1 1,k(int)\n'
    )
    row = read_nsys_csv(written(tmp_path, text)).kernels.iloc[0]
    assert (row["total_ns"], row["min_ns"], row["max_ns"]) == (1_234_567, 500, 1_234_067)
    assert (row["grid"], row["block"]) == ("2,64,1", "128,1,1")


def test_memory_summaries_of_old_and_new_names_are_one_kind(tmp_path):
    text = (
        "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
        "100.0,1000,4,250,250,200,300,1,[CUDA memcpy HtoD]\n\n"
        "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
        "1.500,4,0.4,0.4,0.4,0.4,0.0,[CUDA memcpy Host-to-Device]\n"
    )
    transfers = read_nsys_csv(written(tmp_path, text)).transfers
    assert transfers[["kind", "count", "bytes", "total_ns"]].to_numpy().tolist() == [
        ["HtoD", 4, 1_500_000, 1000]
    ]


@pytest.mark.parametrize("text", ["", "SKIPPED: x.sqlite does not contain CUDA kernel data.\n"])
def test_nothing_and_skipped_are_no_data_not_zero(tmp_path, text):
    tables = read_nsys_csv(written(tmp_path, text))
    assert "no_data" in codes(tables)
    assert dict(tables.summary) == {} and tables.kernels is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n".join(API.splitlines()[:3])[:-40], "cells where the header has"),
        (API.replace("1946448", "1.946.448"), "is not a number"),
        (KERNELS.replace("Max (ns)", "Most"), "no max column"),
        (API.replace("1946448", "9" * 20), "impossibly large"),
        ("latency_ms\n1.5\n", "not a header"),
        (KERNELS.replace("(ns)", "(fortnights)"), "unit 'fortnights' of the column 'Total Time"),
        (KERNELS.replace("(ns)", "()"), "unit '' of the column"),
        (" Time(%)   Total Time (ns)\n -------  -------  ------  -------  -----\n", "text table"),
        ("version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    ],
)
def test_what_is_no_sound_summary_is_refused(tmp_path, text, says):
    with pytest.raises(CaptureError, match=says):
        read_nsys_csv(written(tmp_path, text))


def test_cut_names_are_said(tmp_path):
    text = KERNELS.replace(
        "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT", "nvjet_sm90_tst_64x8_..."
    )
    assert "truncated_names" in codes(read_nsys_csv(written(tmp_path, text)))


def test_a_header_without_rows_is_no_data(tmp_path):
    text = KERNELS.splitlines()[0] + "\n"
    assert "no_data" in codes(read_nsys_csv(written(tmp_path, text)))


def test_calls_of_the_system_and_openmp_do_not_displace_those_of_cuda(tmp_path):
    header = KERNELS.splitlines()[0]
    system = header.replace("Instances", "Num Calls") + "\n9.0,5,1,5,5,5,5,0,poll\n"
    openmp = header.replace("Instances", "Count") + "\n9.0,5,1,5,5,5,5,0,omp\n"
    tables = read_nsys_csv(written(tmp_path, "\n".join((KERNELS, API, system, openmp))))
    assert (tables.summary["num_kernels"], tables.api_calls["count"].sum()) == (380, 805)
    assert "several_summaries" not in codes(tables)
    left_out = next(w.message for w in tables.warnings if w.code == "reports_left_out")
    assert left_out.count("1 rows") == 2


def test_two_different_summaries_of_one_kind_are_said(tmp_path):
    fewer = "\n".join(KERNELS.splitlines()[:3]) + "\n"
    tables = read_nsys_csv(written(tmp_path, f"{KERNELS}\n{fewer}"))
    assert tables.summary["num_kernels"] == 380 and "several_summaries" in codes(tables)
    assert "several_summaries" not in codes(read_nsys_csv(written(tmp_path, f"{API}\n{API}")))


FIGURES = "Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
CATEGORIES = f"Time (%),Total Time (ns),{FIGURES},Category,Operation\n"


def test_kernels_copies_and_calls_of_one_report_are_told_by_their_category(tmp_path):
    text = (
        f"{CATEGORIES}"
        "50.0,1000,10,100,100,90,110,1,CUDA_API,cudaLaunchKernel\n"
        "30.0,600,6,100,100,90,110,1,CUDA_KERNEL,ampere_sgemm\n"
        "15.0,300,3,100,100,90,110,1,CUDA_KERNEL,softmax\n"
        "5.0,100,2,50,50,40,60,1,MEMORY_OPER,[CUDA memcpy Host-to-Device]\n"
    )
    tables = read(written(tmp_path, text))
    assert tables.kernels[["name", "count"]].to_numpy().tolist() == [
        ["ampere_sgemm", 6],
        ["softmax", 3],
    ]
    assert tables.transfers[["kind", "total_ns"]].to_numpy().tolist() == [["HtoD", 100]]
    assert tables.api_calls[["name", "count"]].to_numpy().tolist() == [["cudaLaunchKernel", 10]]
    assert dict(tables.summary) == {"num_kernels": 9, "kernel_time_ns": 900}
    assert "inconsistent_summary" not in codes(tables)


def test_rows_of_an_unknown_category_are_said(tmp_path):
    text = (
        f"{CATEGORIES}90.0,900,9,100,100,90,110,1,CUDA_KERNEL,k\n"
        "10.0,100,1,100,100,100,100,0,CUDA_TELEPORT,x\n"
    )
    message = next(w.message for w in read(written(tmp_path, text)).warnings)
    assert message == "1 rows of unknown categories ('CUDA_TELEPORT'), 100 ns: left out"


def test_calls_of_mpi_are_host_calls_beside_those_of_cuda(tmp_path):
    mpi = f"Time (%),Total Time (ns),{FIGURES},Source,Name\n100.0,80,4,20,20,10,30,1,p2p,MPI_Send\n"
    tables = read(written(tmp_path, f"{mpi}\n{API}"))
    assert tables.kernels is None and dict(tables.summary) == {}
    calls = tables.api_calls.set_index("name")["count"]
    assert (calls["MPI_Send"], calls.sum()) == (4, 805 + 4)


OTHERS = {
    "osrt_sum": f"Time (%),Total Time (ns),{FIGURES.replace('Instances', 'Num Calls')},Name\n"
    "100.0,5,1,5,5,5,5,0,poll\n",
    "openmp_sum": f"Time (%),Total Time (ns),{FIGURES.replace('Instances', 'Count')},Name\n"
    "100.0,5,1,5,5,5,5,0,omp_task\n",
    "vulkan_marker_sum": f"Time (%),Total Time (ns),{FIGURES},Range\n100.0,5,1,5,5,5,5,0,draw\n",
    "nvtx_gpu_proj_sum": "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,"
    "Proj Avg (ns),Proj Med (ns),Proj Min (ns),Proj Max (ns),Proj StdDev (ns),Total GPU Ops\n"
    "step,PushPop,5,5,1,5,5,5,5,0,1\n",
    "nvtx_kern_sum": "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),"
    "Med (ns),Min (ns),Max (ns),StdDev (ns),Kernel Name\nstep,PushPop,1,1,1,1,5,5,5,5,5,0,k\n",
    "cuda_kern_exec_sum": "PID,TID,DevId,Count,QCount,TAvg (ns),TMed (ns),TMin (ns),TMax (ns),"
    "TStdDev (ns),API Name,Kernel Name\n1,1,0,1,1,5,5,5,5,0,cudaLaunchKernel,k\n",
    "cuda_gpu_trace": "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,Device,Ctx,Strm,Name\n"
    "1,5,1,1,1,1,0,1,7,k\n",
    "um_sum": "Virtual Address,HtoD Migration Size (MB),DtoH Migration Size (MB),CPU Page Faults,"
    "GPU PageFaults,Migration Throughput (MB/s)\n0x1,1.0,2.0,3,4,5\n",
    "um_total_sum": "Total HtoD Migration Size (MB),Total DtoH Migration Size (MB),Total CPU Page "
    "Faults,Total GPU PageFaults,Minimum Virtual Address\n1.0,2.0,3,4,0x1\n",
}


@pytest.mark.parametrize("report", OTHERS)
@pytest.mark.parametrize("how", ["named in a title", "named by the file"])
def test_other_reports_are_refused_by_name(how, report, tmp_path):
    title = f" ** Some Summary ({report}):\n\n" if how == "named in a title" else ""
    path = written(tmp_path, title + OTHERS[report], f"report1_{report}.csv")
    with pytest.raises(CaptureError, match=f"{report}: not a summary of kernels"):
        read(path)


@pytest.mark.parametrize("report", OTHERS)
def test_other_reports_beside_kernels_are_left_out_by_name(report, tmp_path):
    text = f" ** A ({report}):\n\n{OTHERS[report]}\n ** B (cuda_gpu_kern_sum):\n\n{KERNELS}"
    tables = read(written(tmp_path, text))
    assert tables.summary["num_kernels"] == 380
    assert f"{report} (1 rows)" in next(w.message for w in tables.warnings)


@pytest.mark.parametrize(
    "report", [r for r in OTHERS if r not in ("openmp_sum", "vulkan_marker_sum")]
)
def test_other_reports_without_any_name_are_no_kernels(report, tmp_path):
    with pytest.raises(CaptureError, match="not a summary of kernels"):
        read(written(tmp_path, OTHERS[report]))


@pytest.mark.parametrize("direction", ["HtoD", "Host-to-Device"])
def test_migrations_of_managed_memory_are_kept_by_direction(direction, tmp_path):
    back = direction.replace("Host", "x").replace("Device", "Host").replace("x", "Device")
    back = "DtoH" if direction == "HtoD" else back
    text = (
        f"Time (%),Total Time (ns),{FIGURES.replace('Instances', 'Count')},Operation\n"
        f"75.0,300,3,100,100,100,100,0,[CUDA Unified Memory memcpy {direction}]\n"
        f"25.0,100,1,100,100,100,100,0,[CUDA Unified Memory memcpy {back}]\n"
    )
    transfers = read(written(tmp_path, text)).transfers
    assert transfers[["kind", "count", "total_ns"]].to_numpy().tolist() == [
        ["unified HtoD", 3, 300],
        ["unified DtoH", 1, 100],
    ]


def test_copies_of_one_kind_add_up_and_unknown_ones_keep_their_names(tmp_path):
    text = (
        f"Time (%),Total Time (ns),{FIGURES.replace('Instances', 'Count')},Operation\n"
        "50.0,100,1,100,100,100,100,0,[CUDA memcpy Host-to-Device]\n"
        "30.0,60,1,60,60,60,60,0,[CUDA memcpy Host-to-Array]\n"
        "20.0,40,1,40,40,40,40,0,[CUDA memcpy Sideways]\n"
    )
    transfers = read(written(tmp_path, text)).transfers
    assert transfers[["kind", "total_ns"]].to_numpy().tolist() == [
        ["HtoD", 160],
        ["CUDA memcpy Sideways", 40],
    ]


@pytest.mark.parametrize(
    "unit", ["us", "\u00b5s", "\u03bcs", "usec", "microseconds", "\u00c2\u00b5s"]
)
def test_microseconds_in_every_spelling_are_the_same_time(unit, tmp_path):
    figures = FIGURES.replace("(ns)", f"({unit})")
    text = f"Time (%),Total Time ({unit}),{figures},Name\n100.0,600.5,6,100.083,100,90,110,1,k\n"
    assert read(written(tmp_path, text)).summary["kernel_time_ns"] == 600_500


def test_a_size_without_any_unit_is_refused(tmp_path):
    text = (
        "Total,Operations,Average,Minimum,Maximum,Operation\n900,9,100,100,100,[CUDA memcpy HtoD]\n"
    )
    with pytest.raises(CaptureError, match="'Total' has no unit"):
        read(written(tmp_path, text))
    titled = f"CUDA Memory Operation Statistics (by size in KiB):\n{text}"
    assert read(written(tmp_path, titled, "b.csv")).transfers["bytes"].tolist() == [900 * 1024]


def test_a_report_by_shape_and_one_by_name_are_one_summary(tmp_path):
    shapes = (
        f"Time (%),Total Time (ns),{FIGURES},GridXYZ,BlockXYZ,Name\n"
        "60.0,600,6,100,100,100,100,0,1 1 1,32 1 1,k\n40.0,400,4,100,100,100,100,0,2 1 1,32 1 1,k\n"
    )
    plain = f"Time (%),Total Time (ns),{FIGURES},Name\n100.0,1000,10,100,100,100,100,0,k\n"
    tables = read(written(tmp_path, f"{plain}\n{shapes}"))
    assert (tables.summary["num_kernels"], len(tables.kernels)) == (10, 2)
    assert "several_summaries" not in codes(tables)


def test_push_pop_and_start_end_ranges_stand_together(tmp_path):
    header = f"Time (%),Total Time (ns),{FIGURES},Range\n"
    rows = [f"{header}100.0,{n},1,{n},{n},{n},{n},0,:{name}\n" for n, name in ((5, "a"), (7, "b"))]
    text = f" ** P (nvtx_pushpop_sum):\n\n{rows[0]}\n ** S (nvtx_startend_sum):\n\n{rows[1]}"
    assert read(written(tmp_path, text)).phases["host_ns"].tolist() == [5, 7]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_reports_that_powershell_wrote_are_read(encoding, tmp_path):
    path = tmp_path / "report.csv"
    path.write_bytes(KERNELS.replace("\n", "\r\n").encode(encoding))
    assert read(path).summary["num_kernels"] == 380


def _capture(folder, name, text):
    path = written(folder, text, name)
    return RunCapture(
        pass_name=Pass.NSYS,
        process=0,
        tables=read(path),
        file_name=name,
        path=path,
        num_bytes=len(text),
        sha256=name,
        source_sha256=name,
    )


def test_times_and_sizes_of_two_files_are_one_table(tmp_path):
    figures = "Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
    times = f"Time (%),Total Time (ns),{figures}100.0,900,9,100,100,100,100,0,[CUDA memcpy HtoD]\n"
    sizes = "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
    sizes += "900.000,9,100.0,100.0,100.0,100.0,0.0,[CUDA memcpy HtoD]\n"
    files = [_capture(tmp_path, "a.csv", sizes), _capture(tmp_path, "b.csv", times)]

    merged, said = merged_captures(files)
    alone, said_alone = merged_captures(files[:1])

    found = [c.tables.transfers for c in merged if c.tables.transfers is not None]
    both = read(written(tmp_path, f"{times}\n{sizes}", "c.csv")).transfers
    assert len(found) == 1 and found[0].equals(both)
    assert "sizes_without_times" not in {w.warning.code for w in said}
    assert alone[0].tables.transfers is None
    assert "sizes_without_times" in {w.warning.code for w in said_alone}


def test_tables_with_tabs_are_read(tmp_path):
    rows = list(csv.reader(io.StringIO(KERNELS)))
    text = "\n".join("\t".join(row) for row in rows) + "\n"
    assert read(written(tmp_path, text, "report.tsv")).summary["num_kernels"] == 380


def test_json_of_nsys_stats_is_refused_by_name(tmp_path):
    text = '[\n  {"Time (%)": 100.0, "Total Time (ns)": 5, "Instances": 1, "Name": "k"}\n]\n'
    with pytest.raises(CaptureError, match="nsys stats as JSON"):
        read(written(tmp_path, text, "report.json"))


def test_a_report_is_told_by_its_columns_in_whatever_order_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "sorted by me.csv"
    file.write_text(
        "Operation,Category,Instances,Total Time (us),Time (%),Min (us),Max (us),Avg (us)\n"
        "[CUDA memset],MEMORY_OPER,4,20,20,5,5,5\n"
        "a_gemm,CUDA_KERNEL,8,80,80,10,10,10\n"
    )

    found = read(file)

    assert found.kernels is not None and found.transfers is not None
    assert found.kernels[["name", "count", "total_ns"]].values.tolist() == [["a_gemm", 8, 80_000]]
    assert found.transfers[["kind", "count", "total_ns"]].values.tolist() == [["memset", 4, 20_000]]
