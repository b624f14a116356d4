"""The stored copy names no person and no machine, and its numbers are those of the original."""

import gzip
import json
import pickle
import random
from pathlib import Path

import pandas as pd
import pytest

from analysis.readers import detect, read
from captures.kinds import CaptureKind
from captures.scrub import MAY_REMAIN, scrub
from core.errors import CaptureError

DATA = Path(__file__).resolve().parents[1] / "data" / "h100"
SECRETS = (b"alice", b"gpu-box-7", b"--api-key")


def _scrubbed(source: Path, dest: Path) -> tuple[bytes, tuple[str, ...]]:
    removed = scrub(source, detect(source), dest)
    data = dest.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data), removed


def test_trace_loses_homes_hosts_and_command_lines(tmp_path: Path) -> None:
    real = gzip.decompress((DATA / "kineto" / "train_bf16.json.gz").read_bytes())
    private = (
        b'"hostname": "gpu-box-7", "cwd": "/home/alice", '
        b'"command_line": "python x.py --api-key 1", "file": "C:\\\\Users\\\\alice\\\\x.py", '
        b'"kernel_file": "/tmp/torchinductor_alice/c.py", "schemaVersion"'
    )
    source = tmp_path / "t.json.gz"
    source.write_bytes(gzip.compress(real.replace(b'"schemaVersion"', private, 1)))
    data, removed = _scrubbed(source, tmp_path / "clean.gz")
    assert not [s for s in SECRETS if s in data]
    assert json.loads(data)["file"] == "x.py"
    assert {"paths", "host, user and command line fields"} <= set(removed)
    pd.testing.assert_frame_equal(read(tmp_path / "clean.gz").kernels, read(source).kernels)


@pytest.mark.parametrize(
    "path",
    [
        "C:\\\\Users\\\\Alice Liddell\\\\x.py",
        "C:/Users/Alice Liddell/x.py",
        "\\/home\\/alice\\/x.py",
        "/mnt/c/Users/Alice Liddell/x.py",
        "/data/home/alice",
    ],
)
def test_homes_in_any_spelling_lose_the_whole_name(tmp_path: Path, path: str) -> None:
    source = tmp_path / "t.json"
    source.write_text(f'{{"traceEvents": [], "file": "{path}"}}')
    data, _ = _scrubbed(source, tmp_path / "clean.json")
    assert b"lice" not in data and b"Liddell" not in data
    json.loads(data)


def test_ncu_table_loses_host_and_process_path(tmp_path: Path) -> None:
    text = (DATA / "ncu" / "decode_eager.raw.csv").read_bytes()
    source = tmp_path / "p.csv"
    source.write_bytes(
        b"==PROF== Connected to process 5 (/home/alice/bin/py)\n"
        + text.replace(b'"python3.12","127.0.0.1"', b'"/opt/alice/python","gpu-box-7"')
    )
    data, removed = _scrubbed(source, tmp_path / "clean.csv")
    assert not [s for s in SECRETS if s in data]
    assert {"host name", "process paths"} <= set(removed)
    pd.testing.assert_frame_equal(read(tmp_path / "clean.csv").counters, read(source).counters)


def test_snapshot_keeps_base_names_and_packages(tmp_path: Path) -> None:
    source = DATA / "memory" / "train_fp32.pickle"
    value = pickle.loads(source.read_bytes())
    shared = value["device_traces"][0][0]["frames"]
    shared.insert(0, {"name": "f", "filename": "/home/alice/lab/model.py", "line": 1})
    shared.insert(
        1, {"name": "g", "filename": "/home/alice/v/lib/python3.12/site-packages/a/b.py", "line": 2}
    )
    private = tmp_path / "s.pickle"
    private.write_bytes(pickle.dumps(value, 4))
    data, removed = _scrubbed(private, tmp_path / "clean.pickle")
    assert b"alice" not in data and b"site-packages/a/b.py" in data and b"model.py" in data
    assert removed == ("folders in stack frames",)
    assert len(data) < 1.1 * len(private.read_bytes())
    clean, whole = read(tmp_path / "clean.pickle"), read(private)
    assert clean.memory == whole.memory
    pd.testing.assert_frame_equal(clean.memory_at_peak, whole.memory_at_peak)


def test_clean_file_stays_as_it_is(tmp_path: Path) -> None:
    source = DATA / "ncu" / "decode_max_autotune.raw.csv"
    data, removed = _scrubbed(source, tmp_path / "clean.csv")
    assert removed == () and data == source.read_bytes()


def test_report_that_cannot_be_rewritten_says_what_may_remain(tmp_path: Path) -> None:
    source = DATA / "ncu" / "decode_max_autotune.ncu-rep"
    data, removed = _scrubbed(source, tmp_path / "x.ncu-rep")
    assert data == source.read_bytes()
    assert len(removed) == 1 and removed[0].startswith(MAY_REMAIN)


def test_damaged_file_leaves_no_copy(tmp_path: Path) -> None:
    source = tmp_path / "t.json.gz"
    source.write_bytes((DATA / "kineto" / "train_bf16.json.gz").read_bytes()[:200_000])
    with pytest.raises(CaptureError, match="cut off"):
        scrub(source, detect(source), tmp_path / "copy.gz")
    assert [p.name for p in tmp_path.iterdir()] == ["t.json.gz"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_long_utf16_table_keeps_all_its_rows(encoding, tmp_path, monkeypatch):
    monkeypatch.setattr("captures.scrub.text._BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr("captures.scrub.text._MAX_LINE_BYTES", 1 << 14)
    rows = "".join(f"0,{1 + i % 7}\r\n" for i in range(20_000))
    source, dest = tmp_path / "latency.csv", tmp_path / "copy.csv"
    source.write_bytes(("process,latency_ms\r\n" + rows).encode(encoding))

    scrub(source, detect(source), dest)

    assert len(read(dest).samples) == 20_000


def test_a_cleaned_trace_is_json_whatever_its_names_hold(tmp_path: Path) -> None:
    rng = random.Random(7)
    pieces = [
        "C:\\",
        "\\",
        '"',
        "/home/",
        "alice",
        "://",
        "@",
        "\\\\server\\",
        "~",
        "Users\\",
        "token=",
    ]
    pieces += [
        "\n",
        "\u00e9",
        "/",
        " ",
        ",",
        "x.py",
        "hf_" + "a" * 20,
        "}",
        "]",
        '"host": ',
        "10.0.0.1",
    ]
    names = ["".join(rng.choices(pieces, k=rng.randrange(1, 12))) for _ in range(3000)]
    names += ['=HYPERLINK("http://127.0.0.1/x","y")', "C:\\dir\\", 'C:\\Users\\x"']
    events = [{"ph": "X", "name": name, "host": name, "args": {"labels": name}} for name in names]
    source = tmp_path / "t.json"
    source.write_text(json.dumps({"traceEvents": events}))
    scrub(source, CaptureKind.TORCH_TRACE, tmp_path / "clean.json")
    cleaned = json.loads((tmp_path / "clean.json").read_text())["traceEvents"]
    assert len(cleaned) == len(events)
    assert {event["host"] for event in cleaned} == {""}


def test_an_ncu_table_that_starts_with_the_process_column_loses_host_and_path(
    tmp_path: Path,
) -> None:
    lines = (DATA / "ncu" / "decode_eager.raw.csv").read_text().splitlines()
    text = "\n".join(line.split(",", 1)[1] for line in lines)
    private = text.replace('"python3.12","127.0.0.1"', '"/opt/alice/python","gpu-box-7"')
    assert "gpu-box-7" in private
    source = tmp_path / "p.csv"
    source.write_text(private)
    scrub(source, CaptureKind.NCU_CSV, tmp_path / "clean.csv")
    cleaned = (tmp_path / "clean.csv").read_text()
    assert cleaned == private.replace("/opt/alice/python", "python").replace(
        "gpu-box-7", "127.0.0.1"
    )


def test_a_table_of_latencies_keeps_its_numbers_and_loses_its_people(tmp_path):
    path = tmp_path / "l.csv"
    rows = ["# run 7", "user;node name;num_tokens;auth_token;latency_ms"]
    rows += [f'"eve; x";n{i};128;ab{i};1{i},5' for i in range(3)]
    path.write_bytes("\r\n".join([*rows, ""]).encode())

    removed = scrub(path, CaptureKind.LATENCY_CSV, tmp_path / "out.csv")

    lines = (tmp_path / "out.csv").read_bytes().decode().split("\r\n")
    assert lines[:2] == rows[:2]
    assert lines[2:] == [f"(removed);(removed);128;(removed);1{i},5" for i in range(3)] + [""]
    assert {"user", "host", "secrets"} <= set(removed)


@pytest.mark.parametrize(
    ("first", "second", "is_gone"),
    [
        *(("/home", "alicesecret", True), ("/home/", "alicesecret/x.py", True)),
        *(("/u", "alicesecret", True), ("/ceph/", "alicesecret/run", True)),
        *(
            ("/scratch/users/alicesecret", "alicesecret", True),
            ("/u/alicesecret", "alicesecret", True),
        ),
        ("/scratch/a/alicesecret", "alicesecret", True),
        *(("C:\\Users", "alicesecret", True), ("~", "alicesecret/x", True)),
        *(("planted-node17", "29500", True), ("planted-node17", "cluster.local", True)),
        *(("auth_token", "abc123def456", True), ("hf_abcdefgh", "ijklmnopqrst", True)),
        *(("alicesecret", "@corp.example", True), ("server", "10.1.2.3", True)),
        *(("/data", "resnet50", False), ("llama-3", "32000", False), ("rank-3", "6379", False)),
        *(("resnet50", "8000", False), ("attn-v2", "5000", False), ("cuda:0", "12", False)),
        *(("llama", "7b", False), ("bert", "base-uncased", False), ("2026-01-01", "12:30", False)),
    ],
)
def test_what_is_private_over_two_cells_of_a_table_goes(tmp_path, first, second, is_gone):
    path = tmp_path / "l.csv"
    rows = ["one,two,iteration,latency_ms"] + [f"{first},{second},{i},1{i}.5" for i in range(30)]
    path.write_text("\n".join([*rows, ""]))

    scrub(path, CaptureKind.LATENCY_CSV, tmp_path / "out.csv")

    lines = (tmp_path / "out.csv").read_text().splitlines()
    kept = [line.split(",") for line in lines[1:]]
    assert [cells[-2:] for cells in kept] == [[str(i), f"1{i}.5"] for i in range(30)]
    assert (lines != rows) == is_gone
    if is_gone:
        whole = (tmp_path / "out.csv").read_text()
        assert not (first in whole and second in whole)
        assert "alicesecret" not in whole


def test_a_name_at_the_end_of_a_long_line_is_gone_from_its_begin(tmp_path):
    path = tmp_path / "t.json"
    events = ",".join(['{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1}'] * 400_000)
    first = '{"ph":"X","cat":"cpu_op","name":"step of alicesecret","ts":1}'
    path.write_text(f'{{"traceEvents":[{first},{events}],"traceName":"/home/alicesecret/t.json"}}')

    scrub(path, CaptureKind.TORCH_TRACE, tmp_path / "out.json")

    assert path.stat().st_size > 18 << 20
    assert b"alicesecret" not in (tmp_path / "out.json").read_bytes()
