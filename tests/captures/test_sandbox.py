"""A child that reads foreign files ends at each of its limits, and does nothing else meanwhile."""

import contextlib
import json
import marshal
import os
import py_compile
import re
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from app.reading import file_job, read_runs
from captures import confined, sandbox
from captures.sandbox import Limits, limits_for, run_limited
from core.config import ReadingSettings
from core.errors import AppError, CaptureError
from db.connection import opened
from tests.conftest import SMALL_TRACE

LIMITS = Limits(memory_bytes=400 << 20, cpu_s=1, wall_s=20, disk_bytes=8 << 20)
NSYS = Path(__file__).parents[1] / "data" / "h100" / "nsys"


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def run_code(scratch, tmp_path, monkeypatch):
    """Give a function that runs Python code in a limited child, and returns its scratch folder."""
    (tmp_path / "code").mkdir()

    def run(code, limits=LIMITS, **options):
        (tmp_path / "code" / "foreign_job.py").write_text(
            "def main(request, scratch):\n" + "".join(f"    {line}\n" for line in code.split("\n"))
        )
        environment = sandbox._environment(scratch)
        paths = f"{environment['PYTHONPATH']}{os.pathsep}{tmp_path / 'code'}"
        monkeypatch.setattr(sandbox, "_environment", lambda _: environment | {"PYTHONPATH": paths})
        run_limited("foreign_job", {}, scratch, limits, subject=Path("x.json"), **options)
        return scratch

    return run


ENDS = {
    "CPU time": "while True: pass",
    "GiB of memory": "x = [bytearray(1 << 20) for _ in range(4000)]\nimport time; time.sleep(9)",
    "longer than 1 s": "import time; time.sleep(30)",
    "GiB of disk": (
        "import time\nfor i in range(9): (scratch / str(i)).write_bytes(bytes(4 << 20))\n"
        "time.sleep(9)"
    ),
    "its reader crashed": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
}


@pytest.mark.parametrize(("limit", "code"), ENDS.items(), ids=ENDS)
def test_the_end_at_a_limit_names_it(run_code, limit, code):
    wall_s = 1 if "longer" in limit else 20
    limits = Limits(memory_bytes=400 << 20, cpu_s=1, wall_s=wall_s, disk_bytes=8 << 20)
    with pytest.raises(CaptureError, match=limit):
        run_code(code, limits)


def test_the_child_and_what_it_started_are_gone_afterwards(run_code, scratch):
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "(scratch / 'pid').write_text(str(p.pid))\n"
        "time.sleep(60)"
    )
    with pytest.raises(CaptureError):
        run_code(code, Limits(memory_bytes=1 << 30, cpu_s=9, wall_s=2, disk_bytes=1 << 30))
    assert not _runs(int((scratch / "pid").read_text()))


DAEMON = """
import os, subprocess, sys, time
sleep = [sys.executable, '-c', 'import time; time.sleep(60)']
(scratch / 'session').write_text(str(subprocess.Popen(sleep, start_new_session=True).pid))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # its parent is gone, its session and its group are its own
        (scratch / 'daemon').write_text(str(os.getpid()))
        os.closerange(0, 100)
        time.sleep(60)
    os._exit(0)
while not (scratch / 'daemon').exists() or not (scratch / 'daemon').read_text(): time.sleep(0.01)
"""
DAEMON_ENDS = {
    "a good end": "",
    "its death": "os.abort()",
    "a limit": "time.sleep(60)",
    "a signal to its parent": "os.kill(os.getppid(), 9)\ntime.sleep(60)",
}


@pytest.mark.parametrize("end", DAEMON_ENDS.values(), ids=DAEMON_ENDS)
def test_daemons_that_left_the_group_and_the_session_are_gone_afterwards(run_code, scratch, end):
    limits = Limits(memory_bytes=1 << 30, cpu_s=9, wall_s=2, disk_bytes=1 << 30)
    with contextlib.suppress(CaptureError):
        run_code(DAEMON + end, limits)
    protection = json.loads((scratch / "protection.json").read_text())
    if "getppid" in end and protection["signals"] == "none":
        pytest.skip("this kernel's Landlock is older than 6.12: the parent can be killed")
    pids = [int((scratch / name).read_text()) for name in ("session", "daemon")]
    assert [pid for pid in pids if _runs(pid)] == []


def _runs(pid):
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_children_of_the_reader_share_its_processor_time(run_code):
    code = (
        "import subprocess, sys\n"
        "for _ in range(40): subprocess.run([sys.executable, '-c', "
        "'import time\\nwhile time.process_time() < 0.7: pass'])"
    )
    with pytest.raises(CaptureError, match="CPU time"):
        run_code(code)


@pytest.mark.parametrize("name", ["r.nsys-rep", "r.qdrep", "r.ncu-rep", "t.json"])
def test_every_child_of_a_reader_has_an_end_to_its_address_space(run_code, tmp_path, name):
    """Also where NVIDIA's tools read, which map much more than they use."""
    (tmp_path / name).write_bytes(b"x" * 1000)
    limits = limits_for([tmp_path / name])
    code = (
        "import resource, subprocess, sys\n"
        "asked = 'import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])'\n"
        "done = subprocess.run([sys.executable, '-c', asked], capture_output=True, text=True)\n"
        "(scratch / 'limit').write_text(done.stdout)"
    )
    limit = int((run_code(code, limits) / "limit").read_text())
    assert limits.memory_bytes < limit <= limits.memory_bytes + (64 << 30)


def test_a_cancelled_reading_ends_and_says_so(run_code):
    with pytest.raises(CaptureError, match="cancelled"):
        run_code("import time; time.sleep(60)", is_cancelled=lambda: True)


def test_the_child_has_no_network(run_code):
    code = (
        "import json, socket\n"
        "try: socket.create_connection(('127.0.0.1', 9), 1)\n"
        "except OSError as exc: (scratch / 'why').write_text(str(exc))"
    )
    folder = run_code(code)
    protection = json.loads((folder / "protection.json").read_text())
    expected = {"namespace": "unreachable|denied", "landlock": "denied", "python": "closed"}
    why = (folder / "why").read_text()
    assert re.search(expected[protection["network"]], why), why


def test_the_child_writes_and_deletes_in_its_scratch_folder_alone(run_code, tmp_path):
    victim = tmp_path / "warpboard.db"
    victim.write_text("all runs")
    code = (
        f"import os\nfor act in (lambda: os.unlink({str(victim)!r}),"
        f" lambda: open({str(victim)!r}, 'w'), lambda: os.mkdir({str(tmp_path / 'new')!r})):\n"
        "    try: act()\n    except OSError: pass\n    else: (scratch / 'acted').touch()\n"
        "(scratch / 'mine').touch()"
    )
    folder = run_code(code)
    if json.loads((folder / "protection.json").read_text())["files"] == "none":
        pytest.skip("this kernel has no Landlock")
    assert victim.read_text() == "all runs"
    assert (folder / "mine").exists() and not (folder / "acted").exists()


def test_the_child_inherits_no_secrets(run_code, monkeypatch):
    monkeypatch.setenv("WARPBOARD_BROKER", "redis://:hunter2@host")
    folder = run_code("import os, json; (scratch / 'env').write_text(json.dumps(dict(os.environ)))")
    assert "hunter2" not in (folder / "env").read_text()


def test_limits_grow_with_the_files_and_follow_the_settings(tmp_path):
    small, large = tmp_path / "a.json", tmp_path / "b.json"
    small.write_bytes(b"x")
    with large.open("wb") as file:
        file.truncate(100 << 20)
    assert limits_for([large]).memory_bytes > limits_for([small]).memory_bytes
    assert limits_for([large]).cpu_s > limits_for([small]).cpu_s + 100
    assert limits_for([small] * 512).cpu_s > limits_for([small]).cpu_s + 200
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(512):
        (folder / f"rank{rank}.json").touch()
    assert limits_for([folder]).cpu_s > limits_for([small]).cpu_s + 200
    given = ReadingSettings(memory_bytes=1 << 28, cpu_s=3)
    assert limits_for([small], given).memory_bytes >= 1 << 28
    assert int(limits_for([small], given).cpu_s) == 3


@pytest.mark.child
def test_a_file_that_brings_the_reader_down_stops_none_of_the_others(
    data_dir, tmp_path, monkeypatch
):
    """The second of three ends the child that reads them together."""
    spin = tmp_path / "spin.json"
    spin.write_text('{"traceEvents": [')
    jobs = [file_job([NSYS / "decode_eager.sqlite"]), file_job([spin]), file_job([SMALL_TRACE])]
    real = sandbox.run_limited

    def dies(module, request, scratch, limits, **options):
        if any("spin" in p for job in request["jobs"] for p in job["paths"]):
            kept = [job for job in request["jobs"] if "spin" not in job["paths"][0]][:1]
            if len(request["jobs"]) > 1:
                real(module, {**request, "jobs": kept}, scratch, limits, **options)
            raise CaptureError(spin, "it was ended: more than 1 s of CPU time", "None")
        real(module, request, scratch, limits, **options)

    monkeypatch.setattr("app.reading.run_limited", dies)
    with opened(data_dir.ensure().db_path) as db, read_runs(data_dir, db, jobs) as found:
        runs = list(found)
        kinds = [isinstance(run, AppError) for run in runs]
        assert kinds == [False, True, False]
        assert runs[0].summary["num_kernels"] > 0
        assert "CPU time" in str(runs[1])
    assert list(data_dir.uploads.iterdir()) == []


@pytest.mark.child
def test_reading_in_a_child_gives_what_reading_here_gives(data_dir, tmp_path):
    from analysis.assemble import assemble
    from analysis.bundle import load_files
    from analysis.capture_file import Staging

    (tmp_path / "here").mkdir()
    here = assemble(load_files([SMALL_TRACE], Staging(folder=tmp_path / "here")))
    with (
        opened(data_dir.ensure().db_path) as db,
        read_runs(data_dir, db, [file_job([SMALL_TRACE])]) as (there,),
    ):
        assert dict(there.summary) == json.loads(json.dumps(dict(here.summary)))
        assert there.classes == here.classes and there.metrics == here.metrics
        assert there.warnings == here.warnings
        old, new = here.captures[0], there.captures[0]
        assert (old.sha256, old.source_sha256) == (new.sha256, new.source_sha256)
        assert new.tables.kernels["total_ns"] == old.tables.kernels["total_ns"].tolist()
        assert new.tables.spans.num_rows == old.tables.spans.num_rows


def test_nothing_heavy_is_loaded_to_have_a_file_read():
    code = "import sys, app.imports, app.reading, db.ingest;"
    code += "print({'pandas', 'pyarrow'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_what_readers_import_is_kept_compiled_and_anew_after_an_update(tmp_path, monkeypatch):
    room, library = tmp_path / "core" / "page.py", tmp_path / "lib" / "depends" / "inner.py"
    for path in (room, library, library.with_name("__init__.py")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    py_compile.compile(str(room))
    later = room.stat().st_mtime + 60
    room.write_text("x = 2\n")
    os.utime(room, (later, later))
    monkeypatch.setattr(confined, "ROOT", tmp_path)
    monkeypatch.setattr(confined, "_LIBRARIES", ("depends.inner", "not_installed"))
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    confined._keep_bytecode()

    assert Path(cache_from_source(str(library))).exists()
    code = marshal.loads(Path(cache_from_source(str(room))).read_bytes()[16:])
    assert 2 in code.co_consts
    assert "depends" not in sys.modules
