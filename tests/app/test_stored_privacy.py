"""No byte that an import stores names who was there: files, database, launches and exports."""

import gzip
import json
import pickle
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.imports import import_paths
from tests.analysis.readers.nsys_files import edited

H100 = Path(__file__).parents[1] / "data" / "h100"
UUID = "554a6988-03dd-6206-3dd1-f43fb60a3ed0"
PLANTED = (
    b"alicesecret",
    b"SECRETKEY123",
    b"secrethost42",
    b"554a6988",
    b"corp.example",
    b"/ceph/",
)
ENVIRONMENT = (
    "HOSTNAME=secrethost42\nWANDB_API_KEY=SECRETKEY123\nalicesecret@corp.example\n"
    "python train.py --token SECRETKEY123\nHOME=/home/alicesecret\n"
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
)


def nsys(folder):
    return edited("train_bf16.sqlite", folder, NSYS)


def trace(folder):
    document = json.loads(gzip.decompress((H100 / "kineto" / "train_bf16.json.gz").read_bytes()))
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


MADE = {f.__name__: f for f in (nsys, trace, ncu_table, ncu_log, snapshot)}


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
    left = {(p.name, w) for p, data in stored_bytes(data_dir.root) for w in PLANTED if w in data}
    assert left == set()
    assert found.removed


@pytest.mark.parametrize("make", [nsys, trace], ids=["nsys", "trace"])
def test_nothing_planted_is_in_an_export(data_dir, tmp_path, make, cli):
    run_id = import_paths(data_dir, [make(tmp_path)], name="run").run_id
    assert cli("show", run_id, "--json") == 0
    assert cli.out
    assert [word for word in PLANTED if word.decode() in cli.out] == []
