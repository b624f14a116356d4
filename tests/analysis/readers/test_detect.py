"""Files are told apart by content, and what is not a capture is named for what it is."""

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from analysis.readers import check_kind, detect, read
from analysis.readers.nsys.export import read_nsys_sqlite
from analysis.tables import CaptureKind
from core.errors import CaptureError

DATA = Path(__file__).resolve().parents[2] / "data" / "h100"
KINDS = {
    "nsys/decode_eager.sqlite": CaptureKind.NSYS_SQLITE,
    "nsys/no_gpu_work.sqlite": CaptureKind.NSYS_SQLITE,
    "nsys/decode_eager.cuda_gpu_kern_sum.csv": CaptureKind.NSYS_CSV,
    "nsys/decode_eager.cuda_api_sum.csv": CaptureKind.NSYS_CSV,
    "nsys/decode_eager.nvtx_sum.csv": CaptureKind.NSYS_CSV,
    "ncu/decode_eager.raw.csv": CaptureKind.NCU_CSV,
    "ncu/decode_eager.details.csv.gz": CaptureKind.NCU_CSV,
    "ncu/decode_max_autotune.ncu-rep": CaptureKind.NCU_REP,
    "ncu/decode_max_autotune.ncu.log": CaptureKind.NCU_LOG,
    "ncu/no_kernels_profiled.ncu.log": CaptureKind.NCU_LOG,
    "kineto/train_bf16.json.gz": CaptureKind.TORCH_TRACE,
    "memory/train_oom.pickle": CaptureKind.MEMORY_SNAPSHOT,
}


@pytest.mark.parametrize("name", KINDS)
def test_kind_is_found_whatever_the_name(name: str, tmp_path: Path) -> None:
    renamed = tmp_path / "upload.bin"
    shutil.copy(DATA / name, renamed)
    assert detect(renamed) is KINDS[name]


def test_a_size_summary_alone_is_a_report_of_nsys(tmp_path: Path) -> None:
    path = tmp_path / "sizes"
    path.write_text("Total (MB),Count,Avg (MB),Operation\n1.5,4,0.4,[CUDA memcpy HtoD]\n")
    assert detect(path) is CaptureKind.NSYS_CSV
    assert read(path).transfers["bytes"].tolist() == [1_500_000]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "Git LFS pointer"),
        (b"", "empty"),
        (b" \n\n", "only blanks"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04abc", "zip archive"),
        (
            b'"#","Address","Source","Warp Stall Sampling (All)"\n',
            "source page",
        ),
        (b"QDSTRM\0\0\1", "unfinished nsys recording"),
        (b"==5654== NVPROF is profiling process 5654, command: python a.py\n", "nvprof's output"),
        (b"Index,KernelName,gpu-id,queue-id\n0,add,4,0\n", "ROCm's profiler"),
        (b'"Name","Calls","TotalDurationNs","AverageNs"\n"add",1,5,5\n', "ROCm's profiler"),
        (b"Dispatch_ID,GPU_ID,Grid_Size\n0,2,64\n", "ROCm's profiler"),
        (b"Kernel Report\nKernel,Calls\n", "a report of DLProf"),
        (b'{"a": 1}', "no `traceEvents`"),
        (b"hello\n", "type is not recognised"),
        (gzip.compress(gzip.compress(b"x", mtime=0), mtime=0), "gzip file inside another"),
        (gzip.compress(b"NVR\0rest", mtime=0), "compressed ncu report"),
    ],
)
def test_what_is_no_capture_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=said) as caught:
        read(path)
    assert str(caught.value).startswith("trace.sqlite: ")
    assert "\n" not in str(caught.value)


def test_header_lines_of_nsys_reports_are_known(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 2026@1@2@63-261237296639v0.\n\0\1")
    assert detect(path) is CaptureKind.NSYS_REP


def test_another_sqlite_database_is_refused_with_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "app.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customers (id INTEGER)")
    with pytest.raises(CaptureError, match=r"not from nsys.*customers"):
        detect(path)


def test_missing_file_and_plain_folder_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such file"):
        read(tmp_path / "gone.sqlite")
    with pytest.raises(CaptureError, match=r"manifest\.json"):
        detect(tmp_path)


def test_a_database_of_nvprof_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "old.nvvp"
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start int, end int)")
        conn.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start int, end int)")
        conn.execute("CREATE TABLE StringTable (_id_ integer primary key, value text)")
    with pytest.raises(CaptureError, match="nvprof"):
        detect(path)
    with pytest.raises(CaptureError, match="nvprof"):
        read_nsys_sqlite(path)


def test_folder_with_manifest_is_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert detect(tmp_path) is CaptureKind.BUNDLE


def test_gzip_bomb_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb") as out:
        out.write(b'{"traceEvents": [')
        for _ in range(300):
            out.write(b" " * (1 << 20))
    with pytest.raises(CaptureError, match="grows beyond"):
        read(path)


def test_file_that_changes_while_read_is_refused(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "latency.csv"
    path.write_text("latency_ms\n1.5\n")
    from analysis import readers
    from analysis.readers import latency_csv

    def grow_and_read(found: Path):
        tables = latency_csv.read_latency_csv(found)
        with found.open("a") as out:
            out.write("2.5\n")
        return tables

    monkeypatch.setattr(readers, "_reader", lambda kind, is_own_copy, scratch: grow_and_read)
    with pytest.raises(CaptureError, match="changed while"):
        read(path)


def test_what_nsys_prints_at_its_end_is_its_text_table_however_the_report_was_made(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.txt"
    path.write_text(
        "Max error: 0\nGenerating '/tmp/nsys-report-ed54.qdstrm'\n\nCUDA Kernel Statistics:\n\n"
        " Time (%)  Total Time (ns)  Instances  Avg (ns)         Name\n"
        " --------  ---------------  ---------  --------  -----------------\n"
        "    100.0              473          1     473.0  add(int, float *)\n"
    )
    with pytest.raises(CaptureError, match="text table of nsys stats"):
        read(path)


def test_a_database_of_rocm_is_named_for_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "28_results.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE rocpd_kernel_dispatch (id INTEGER)")
        made.commit()
    with pytest.raises(CaptureError, match="ROCm's profiler"):
        detect(path)


@pytest.mark.parametrize(
    ("head", "said", "found"),
    [
        (b"SQLite format 3\0", CaptureKind.NCU_CSV, "nsys_sqlite"),
        (b"NVR\0", CaptureKind.TORCH_TRACE, "ncu_rep"),
        (b"PK\x03\x04", CaptureKind.LATENCY_CSV, "a zip archive"),
    ],
)
def test_a_file_of_another_kind_than_its_bundle_says_is_refused_by_its_first_bytes(
    tmp_path: Path, head: bytes, said: CaptureKind, found: str
) -> None:
    file = tmp_path / "capture"
    file.write_bytes(head + bytes(100))

    with pytest.raises(CaptureError, match=f"this is {found}, not {said}"):
        check_kind(file, said)


def test_a_file_that_begins_as_its_kind_does_or_as_text_is_left_to_its_reader(
    tmp_path: Path,
) -> None:
    for name, kind in KINDS.items():
        check_kind(DATA / name, kind)
    noisy = tmp_path / "run.log"
    noisy.write_bytes(b"\0\0 what the program printed\n==PROF== Connected\n")
    check_kind(noisy, CaptureKind.NCU_LOG)
