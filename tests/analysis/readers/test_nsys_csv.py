import pytest

from analysis.readers.nsys_csv import read_nsys_csv
from core.errors import CaptureError
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
        (API.replace("1946448", "9" * 20), "more than can be"),
        ("latency_ms\n1.5\n", "no header"),
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
    assert "other_api" not in codes(tables) and "several_summaries" not in codes(tables)


def test_two_different_summaries_of_one_kind_are_said(tmp_path):
    fewer = "\n".join(KERNELS.splitlines()[:3]) + "\n"
    tables = read_nsys_csv(written(tmp_path, f"{KERNELS}\n{fewer}"))
    assert tables.summary["num_kernels"] == 380 and "several_summaries" in codes(tables)
    assert "several_summaries" not in codes(read_nsys_csv(written(tmp_path, f"{API}\n{API}")))
