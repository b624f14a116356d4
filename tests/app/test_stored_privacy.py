"""No byte that an import stores names who was there: files, database, launches and exports."""

import gzip
import json
import os
import pickle
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis.compare.engine import compare
from analysis.export import to_csv
from analysis.studies.engine.run import list_studies, run_study
from app.imports import import_paths
from captures.contents import file_sha256
from core.config import DataDir
from core.gpus import is_one_gpu
from core.spec import JobSpec
from db.connection import opened
from db.fetch import run_view
from tests.analysis.readers.nsys_files import edited
from tests.app.conftest import Cli
from tests.conftest import SMALL_TRACE

H100 = Path(__file__).parents[1] / "data" / "h100"
UUID = "554a6988-03dd-6206-3dd1-f43fb60a3ed0"
PLANTED = (
    b"alicesecret",
    b"SECRETKEY123",
    b"secrethost42",
    b"554a6988",
    b"corp.example",
    b"/ceph/",
    b"plantdb07",
    b"planted-node17",
)
ENVIRONMENT = (
    "HOSTNAME=secrethost42\nWANDB_API_KEY=SECRETKEY123\nalicesecret@corp.example\n"
    "python train.py --token SECRETKEY123\nHOME=/home/alicesecret\n"
    "wait for plantdb07:5432 and planted-node17.cluster.local:29500\n"
)
NSYS = [
    f"UPDATE TARGET_INFO_GPU SET uuid = '{UUID}'",
    "ALTER TABLE TARGET_INFO_CUDA_DEVICE ADD COLUMN uuid TEXT",
    f"UPDATE TARGET_INFO_CUDA_DEVICE SET uuid = 'GPU-{UUID}'",
    "ALTER TABLE ANALYSIS_FILE ADD COLUMN content TEXT",
    f"INSERT INTO ANALYSIS_FILE (id, filename, globalPid, content)"
    f" VALUES (77, '/home/alicesecret/out.txt', 1, '{ENVIRONMENT}')",
    "CREATE TABLE GENERIC_EVENTS (data TEXT)",
    """INSERT INTO GENERIC_EVENTS VALUES ('{"Host":"secrethost42","User":"alicesecret"}')""",
    "CREATE TABLE ETW_EVENTS (data TEXT)",
    """INSERT INTO ETW_EVENTS VALUES ('{"CommandLine":"x SECRETKEY123","User":"alicesecret"}')""",
    'INSERT INTO NVTX_EVENTS (start, "end", eventType, globalTid, text)'
    " VALUES (1, 2, 59, 1, 'rank0@secrethost42 user alicesecret')",
    'INSERT INTO NVTX_EVENTS (start, "end", eventType, globalTid, text)'
    " VALUES (1, 2, 59, 1, 'load https://alicesecret:SECRETKEY123@hf.co/m')",
    'INSERT INTO NVTX_EVENTS (start, "end", eventType, globalTid, text)'
    " VALUES (1, 2, 59, 1, 'planted-node17:6379 to plantdb07:5432')",
    'UPDATE NVTX_EVENTS SET jsonText = \'{"cwd":"/ceph/alicesecret"}\' WHERE rowid % 5 = 1',
    "UPDATE DIAGNOSTIC_EVENT SET text = text || ' for alicesecret in /u/alicesecret'",
    "CREATE TABLE CUSTOM_BLOB (b BLOB)",
    "INSERT INTO CUSTOM_BLOB VALUES (x'616C696365736563726574')",
    "INSERT INTO StringIds SELECT max(id) + 1, 'STDOUT alicesecret SECRETKEY123' FROM StringIds",
]
PATHS = ("/u/alicesecret/t.py(3): main", "/ceph/alicesecret/t.py", "cd /home/alicesecret")
PATHS += ("/global/homes/a/alicesecret/t.py", "C:\\Users\\alicesecret\\t.py", "~alicesecret/x")
PATHS += (
    "/mnt/nfs/alicesecret/x",
    "\\\\nas\\alicesecret\\x",
    "step of alicesecret",
    "[10.1.2.3:29500]",
    "send to planted-node17:29500",
    "get from plantdb07:5432",
    "open %2Fu%2Falicesecret%2Fx of \\/ceph\\/alicesecret\\/y",
    "-I/home/alicesecret/include -L/nfs4/home//alicesecret/lib",
    "--user alicesecret --host secrethost42",
)


def nsys(folder):
    return edited("train_bf16.sqlite", folder, NSYS)


def trace(folder):
    document = json.loads(gzip.decompress(SMALL_TRACE.read_bytes()))
    document |= {
        "hostname": "secrethost42",
        "host": "secrethost42",
        "userName": "alicesecret",
        "argv": ["python", "--token", "SECRETKEY123"],
        "environment": {"USER": "alicesecret", "HF_TOKEN": "SECRETKEY123"},
        "meta": json.dumps({"user": "alicesecret"}),
        "distributedInfo": {"backend": "nccl", "rank": 0, "hostnames": ["secrethost42"]},
        "traceName": "/home/alicesecret/t.json",
    }
    document["deviceProperties"][0]["uuid"] = f"GPU-{UUID}"
    own = {"ph": "X", "cat": "user_annotation", "pid": 2400, "tid": 2400, "dur": 5}
    ts = document["traceEvents"][0]["ts"]
    document["traceEvents"] += [{**own, "ts": ts + n, "name": p} for n, p in enumerate(PATHS)]
    label = {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "secrethost42 CPU"}}
    document["traceEvents"].append(label)
    path = folder / "t.json"
    path.write_text(json.dumps(document))
    return path


def ncu_table(folder):
    text = (H100 / "ncu" / "decode_eager.raw.csv").read_text()
    rows = text.replace('"python3.12","127.0.0.1"', '"/opt/alicesecret/python","secrethost42"')
    path = folder / "n.csv"
    path.write_text(f"==PROF== Connected to process 5 (/home/alicesecret/bin/py)\n{rows}\n")
    return path


def ncu_log(folder):
    text = (H100 / "ncu" / "decode_max_autotune.ncu.log").read_text()
    path = folder / "n.log"
    path.write_text(
        text.replace("/usr/bin/python3.12", "/home/alicesecret/bin/python") + ENVIRONMENT
    )
    return path


def snapshot(folder):
    value = pickle.loads((H100 / "memory" / "train_fp32.pickle").read_bytes())
    frame = {"name": "f", "filename": "/home/alicesecret/lab/model.py", "line": 1}
    value["device_traces"][0][0]["frames"].insert(0, frame)
    value["device_traces"][0][0]["user_metadata"] = "run in /ceph/alicesecret/x"
    path = folder / "s.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    return path


def ncu_report(folder):
    """Texts of the same length in a real report: who ran it, and a kernel's name."""
    data = (H100 / "ncu" / "decode_max_autotune.ncu-rep").read_bytes()
    for old, new in (
        (b"/usr/bin/python3.12", b"/home/alicesecret/p"),
        (
            b"triton_red_fused_mm_t_transpose_view_4",
            b"triton_red_of_alicesecret_in_a_view_42",
        ),
    ):
        assert old in data and len(old) == len(new)
        data = data.replace(old, new)
    path = folder / "n.ncu-rep"
    path.write_bytes(data)
    return path


def ncu_source(folder):
    rows = [
        '"Kernel Name","fused_by_alice@corp.example_in_/home/alicesecret/x"',
        '"#","Source","Address","Warp Stall Sampling (All Samples)","stall_wait"',
        '"1","x = f(y);  // /home/alicesecret/lab/k.cu:12","0x10","30","25"',
        '"2","load(""https://alicesecret:SECRETKEY123@hf.co/m"")","0x20","90","80"',
    ]
    path = folder / "source.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def nsys_table(folder):
    text = (H100 / "nsys" / "decode_eager.nvtx_sum.csv").read_text()
    head, row, *rest = text.splitlines()
    name = row.rpartition(",")[2]
    made = [row.removesuffix(name) + f'"{p}"' for p in PATHS if '"' not in p]
    note = "Processing [/home/alicesecret/report.sqlite] with [/opt/nsys/nvtx_sum.py]..."
    path = folder / "t.csv"
    path.write_text("\n".join([note, head, row, *rest, *made]) + "\n")
    return path


def latencies(folder):
    rows = ["hostname,user,path,iteration,latency_ms"]
    rows += [f"secrethost42,alicesecret,/ceph/alicesecret/x,{i},{12 + i % 3}" for i in range(20)]
    path = folder / "l.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def split_latencies(folder):
    """What is private only where two cells stand together."""
    rows = ["folder,name,server,port,iteration,latency_ms"]
    rows += [f"/home,alicesecret,planted-node17,29500,{i},{12 + i % 3}" for i in range(20)]
    path = folder / "s.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def ranks_trace(folder):
    """Groups, collectives and call stacks: what several GPUs and `with_stack` add."""
    document = json.loads(gzip.decompress(SMALL_TRACE.read_bytes()))
    group = {"pg_name": "of alicesecret", "pg_desc": "tcp://secrethost42:29500", "ranks": [0, 1]}
    document["distributedInfo"] = {
        "backend": "nccl",
        "rank": 0,
        "world_size": 2,
        "pg_config": [group],
        "nccl_version": "2.27 built by alicesecret",
    }
    args = {
        "Collective name": "allreduce",
        "Process Group Name": "tp of alicesecret",
        "Process Group Description": "tcp://secrethost42.corp.example:29500",
        "Process Group Ranks": "[0, 1]",
        "Call stack": "/home/alicesecret/lab/train.py(3): main",
        "Concrete Inputs": ["/ceph/alicesecret/data", "HF_TOKEN=SECRETKEY123"],
        "External id": "alicesecret",
    }
    kernels = [e for e in document["traceEvents"] if e.get("cat") == "kernel"]
    for event in kernels[::20]:
        event["name"] = "ncclDevKernel_AllReduce_Sum_bf16"
        event["args"] |= args
    stack = {"ph": "X", "cat": "python_function", "pid": 2400, "tid": 2400, "dur": 9}
    ts = kernels[0]["ts"]
    document["traceEvents"] += [{**stack, "ts": ts + n, "name": p} for n, p in enumerate(PATHS)]
    path = folder / "r.json"
    path.write_text(json.dumps(document))
    return path


FROM_FILES = (nsys, trace, ncu_table, ncu_log, snapshot, ncu_source, nsys_table, latencies)
MADE = {f.__name__: f for f in (*FROM_FILES, ranks_trace, split_latencies)}


def bundle(folder):
    """A bundle that was made with private fields kept, or by somebody else's program."""
    place = folder / "bundle"
    place.mkdir()
    capture = nsys(place)
    item = {"file": capture.name, "kind": "nsys_sqlite", "sha256": file_sha256(capture)}
    failure = {"code": "x", "message": "ssh alicesecret@secrethost42 and cd /ceph/alicesecret"}
    argv = ["python", "/home/alicesecret/t.py", "--token", "SECRETKEY123"]
    manifest = {
        "schema_version": 1,
        "status": "done",
        "job": JobSpec(workload="command", params={"argv": json.dumps(argv)}).as_dict(),
        "gpu": {"model": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{UUID}", "uuids": [f"GPU-{UUID}"]},
        "environment": {"hostname": "secrethost42", "user": "alicesecret", "torch": "2.9"},
        "error": "ended on secrethost42: see /u/alicesecret/log",
        "warnings": [failure],
        "passes": [
            {
                "pass": "nsys",
                "process": 0,
                "status": "ok",
                "command": ["nsys", "profile", "-o", "/ceph/alicesecret/out"],
                "warnings": [failure],
                "captures": [{**item, "bytes": capture.stat().st_size}],
                "result": {
                    "environment": {"HOSTNAME": "secrethost42", "HF_TOKEN": "SECRETKEY123"},
                    "metrics": [
                        {"name": "loss of alicesecret", "value": 1.5, "unit": "/ceph/alicesecret"}
                    ],
                    "marks": [{"name": "load /home/alicesecret/x", "at_ns": 5}],
                },
                "notes": {"said": "alicesecret@corp.example on secrethost42"},
                "clocks": {"source": "/home/alicesecret/bin/nvidia-smi"},
            }
        ],
    }
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def stored_bytes(root):
    """Return (file, bytes) of everything stored; packed files and columns unpacked."""
    for path in (p for p in root.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data += str(pq.read_table(path).to_pydict()).encode()
        yield path, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_nothing_planted_is_in_any_stored_byte(data_dir, tmp_path, make):
    path = make(tmp_path)
    assert any(word in path.read_bytes() for word in PLANTED)
    found = import_paths(data_dir, [path], name="run")
    assert planted_in(data_dir) == set()
    assert found.removed


def planted_in(data_dir, leave_out=""):
    return {
        (path.name, word)
        for path, data in stored_bytes(data_dir.root)
        for word in PLANTED
        if word in data and not (leave_out and path.name.endswith(leave_out))
    }


def test_nothing_planted_in_a_bundle_is_in_any_stored_byte(data_dir, tmp_path):
    import_paths(data_dir, [bundle(tmp_path)], name="run")
    assert planted_in(data_dir) == set()


def test_a_bundle_that_comes_again_is_known_though_it_was_cleaned(data_dir, tmp_path):
    place = bundle(tmp_path)
    first, again = (import_paths(data_dir, [place]) for _ in range(2))
    assert (first.is_new, again.is_new, again.run_id) == (True, False, first.run_id)


def test_two_bundles_of_one_gpu_are_of_one_without_its_uuid(data_dir, tmp_path):
    first = bundle(tmp_path)
    second = shutil.copytree(first, tmp_path / "second")
    manifest = (second / "manifest.json").read_text()
    (second / "manifest.json").write_text(manifest.replace('"2.9"', '"2.10"'))
    with opened(data_dir.ensure().db_path) as db:
        for path in (first, second):
            assert import_paths(data_dir, [path]).is_new
        (key,) = {row[0] for row in db.execute("SELECT gpu_id FROM runs").fetchall()}
        assert key.startswith("import/D-") and is_one_gpu(key)
        assert db.execute("SELECT count(*) FROM gpus").fetchone()[0] == 1


@pytest.mark.child
def test_names_out_of_a_counter_report_are_cleaned_before_they_are_stored(data_dir, tmp_path):
    pytest.importorskip("ncu_report")
    found = import_paths(data_dir, [ncu_report(tmp_path)], name="run")
    assert planted_in(data_dir, leave_out=".ncu-rep") == set()
    assert found.removed[0].startswith("may remain: ")
    with opened(data_dir.db_path) as db:
        names = {row[0] for row in db.execute("SELECT name FROM kernel_names").fetchall()}
    assert "triton_red_of_(removed)_in_a_view_42" in names


@pytest.mark.child
@pytest.mark.parametrize("keep_private", [False, True])
def test_names_out_of_a_timeline_report_are_cleaned_before_they_are_stored(
    data_dir, tmp_path, monkeypatch, keep_private
):
    """The stored report holds them, and the import says so; the database does not."""
    export = nsys(tmp_path)
    tool = tmp_path / "tool" / "nsys"
    tool.parent.mkdir()
    version = 'echo "NVIDIA Nsight Systems version 2025.5.2.10-253135822126v0"'
    asked = f'[ "$1" = --version ] && {{ {version}; exit 0; }}'
    tool.write_text(f'#!/bin/sh\n{asked}\ncp {export} "$7"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    report = tmp_path / "r.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2025@3@1@90-2531v0.\n alicesecret")

    found = import_paths(data_dir, [report], name="run", keep_private=keep_private)

    assert planted_in(data_dir, leave_out=".nsys-rep") == set()
    with opened(data_dir.db_path) as db:
        assert db.execute("SELECT count(*) FROM kernels").fetchone()[0] > 0
    if not keep_private:
        assert found.removed[0].startswith("may remain: ")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Return a data directory with a bundle and a trace that held planted words, and both ids."""
    folder = tmp_path_factory.mktemp("two")
    data = DataDir(root=folder / "data").ensure()
    made = [bundle(folder), trace(folder)]
    ids = [import_paths(data, [p], name=f"run {i}").run_id for i, p in enumerate(made)]
    return data, ids


@pytest.fixture(scope="module")
def studies(two_runs):
    """The studies that hold a number of the two runs: the others hold published ones alone."""
    data, ids = two_runs
    with opened(data.db_path) as db:
        views = [run_view(db, data, run_id) for run_id in ids]
    frames = {study.name: run_study(study.name, views).frame for study in list_studies()}
    return [name for name, frame in frames.items() if (frame["from"] == "measured").any()]


EXPORTS = {
    "show": ("show", "{a}", "--json"),
    "show text": ("show", "{a}"),
    "trace": ("show", "{b}", "--json"),
    "runs": ("runs", "--json"),
    **{f"compare {f}": ("compare", "{a}", "{b}", "--format", f) for f in ("text", "md", "json")},
    "compare html": ("compare", "{a}", "{b}", "--format", "html"),
    **{f"study {f}": ("study", "STUDY", "--format", f) for f in ("md", "csv", "json", "html")},
}


@pytest.mark.parametrize("words", EXPORTS.values(), ids=EXPORTS)
def test_nothing_planted_is_in_an_export(two_runs, studies, capsys, words):
    data, ids = two_runs
    cli, names = Cli(data, capsys), dict(zip("ab", ids, strict=True))
    for study in studies if "STUDY" in words else [""]:
        cli(*(w.format(**names).replace("STUDY", study) for w in words))
        assert cli.out
        assert [word for word in PLANTED if word.decode() in cli.out] == []


def test_nothing_planted_is_in_what_a_page_saves(two_runs):
    data, ids = two_runs
    with opened(data.db_path) as db:
        views = [run_view(db, data, run_id) for run_id in ids]
    saved = to_csv(compare([views[0]], [views[1]]))
    assert saved.count("\n") > 3
    assert [word for word in PLANTED if word.decode() in saved] == []
