"""`python -m worker.profile` with real programs: a PyTorch script, one without PyTorch, faults."""

import functools
import gzip
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.git import commit_of

ROOT = Path(__file__).resolve().parents[2]
FAKE_TOOLS = ROOT / "tests" / "fake_tools"

PROGRAMS = Path(__file__).parent / "profile_programs"
TRAIN = (PROGRAMS / "train.py").read_text()


MARKED = (PROGRAMS / "marked.py").read_text()
SERVE = """
import sys, time, torch
net = torch.nn.Linear(8, 8)
with torch.no_grad():
    for _ in range(int(sys.argv[1])):
        net(torch.ones(2, 8))
        time.sleep(0.002)
"""
"""Without an optimizer: PyTorch imports its compiler for one, which takes as long as all else."""


def written(folder, script):
    """Write a script, and beside it the module of the marks, as its user would; return its path."""
    path = folder / "train.py"
    path.write_text(script)
    (folder / "warpboard_marks.py").write_bytes((ROOT / "warpboard_marks.py").read_bytes())
    return path


def run_profile(folder, script, *options, env=None, words=("14",), python=sys.executable):
    """Profile a script; return (exit code, manifest, output, errors)."""
    path = written(folder, script)
    out = folder / "bundle"
    tools = {"PATH": os.pathsep.join([str(FAKE_TOOLS), os.environ["PATH"]])}
    done = subprocess.run(
        [sys.executable, "-m", "worker.profile", "--out", str(out), *options, "--",
         python, str(path), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
             "WARPBOARD_DATA": str(folder / "data"), **(env or {}),
             **(tools if (env or {}).get("FAKE") else {"WARPBOARD_NSYS": "/nowhere/nsys"})},
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    manifest = out / "manifest.json"
    found = json.loads(manifest.read_text()) if manifest.is_file() else None
    return done.returncode, found, done.stdout, done.stderr


@pytest.fixture
def profile(tmp_path):
    """Return `run_profile` with a folder of the test's own."""
    return functools.partial(run_profile, tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Profile the training script once; return the folder and what `run_profile` does."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, run_profile(folder, TRAIN, "--metric", r", ([0-9]+) rows/s")


def pass_of(manifest, name):
    return next(p for p in manifest["passes"] if p["pass"] == name)


def test_unchanged_training_script_gives_step_latency_that_holds_what_it_times_itself(trained):
    _, (code, manifest, output, errors) = trained

    clean = pass_of(manifest, "clean")["result"]
    own = [float(line.split()[1]) for line in output.splitlines() if line.startswith("took")]
    own = own[clean["steps"]["num_skipped"] : -1]  # the last step has no next one
    assert (code, manifest["status"]) == (0, "done"), errors
    assert clean["steps"]["kind"] == "training"
    assert clean["steps"]["num_steps"] == 14
    assert "Sequential" in clean["environment"]["step"]
    assert len(clean["samples_ns"]) == len(own)
    # A step to the next holds what the program times and what it does between: never less, and
    # on a machine with other work not exactly as much.
    measured = statistics.median(clean["samples_ns"]) / 1e6
    assert 0.9 * statistics.median(own) <= measured <= 2 * statistics.median(own)
    rows, whole = clean["metrics"]
    assert rows == {"name": "rows/s", "value": 16000.0, "unit": ""}
    assert (whole["name"], whole["unit"]) == ("program_time", "s")
    assert whole["value"] >= sum(own) / 1e3


def test_trace_pass_without_nsys_holds_the_chosen_steps_and_their_parts(trained):
    folder, _ = trained

    [path] = (folder / "bundle").glob("trace-*.json.gz")
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    names = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert sum(n.startswith("ProfilerStep#") for n in names) == 4
    for part in ("forward", "backward", "optimizer", "0", "2"):
        assert names.count(part) == 4, part


DAEMON = """
import os, subprocess, sys, time
if len(sys.argv) == 2:
    subprocess.Popen([sys.executable, *sys.argv, "at work"], start_new_session=True)
    print("started", flush=True)
    sys.exit(4)
""" + SERVE.replace("0.002", "0.1")


def test_what_a_program_leaves_at_work_when_it_ends_is_measured_to_its_end(profile):
    code, manifest, output, errors = profile(DAEMON, "--passes", "clean", words=["30"])

    clean = pass_of(manifest, "clean")
    assert (code, output) == (4, "started\n"), errors
    assert clean["result"]["steps"]["num_steps"] == 30
    assert "left_running" in [w["code"] for w in clean["warnings"]]
    assert "has ended and left python" in errors


@pytest.mark.parametrize(
    ("end", "code"),
    [("exit at once", 7), ("terminate", 128 + signal.SIGTERM)],
)
def test_steps_outlive_however_the_program_ends_and_its_exit_code_is_passed_on(profile, end, code):
    found, manifest, _, errors = profile(MARKED, "--passes", "clean", words=["14", end])

    clean = pass_of(manifest, "clean")
    assert found == code, errors
    # A signal may take the records of the last five milliseconds with it.
    assert clean["result"]["steps"]["num_steps"] >= 13
    assert clean["outcome"] == "ok"
    how = f"ended with code {code}" if code < 128 else "ended by SIGTERM"
    assert any(how in w["message"] for w in clean["warnings"])


def test_steps_option_ends_the_program_after_so_many(profile, warm_python):
    code, manifest, _, errors = profile(
        SERVE, "--steps", "6", "--skip", "2", words=["1000000000"], python=warm_python
    )

    clean = pass_of(manifest, "clean")["result"]
    assert code == 0, errors
    assert len(clean["samples_ns"]) == 6
    assert "metrics" not in clean  # the time of a program that was ended says nothing
    assert pass_of(manifest, "trace")["captures"]


def test_program_without_pytorch_has_no_latency_and_its_whole_run_is_in_the_nsys_capture(profile):
    code, manifest, _, errors = profile(
        "print('solved')", env={"FAKE": "1", "FAKE_NSYS_CAPTURE": "decode_eager.sqlite"}
    )

    clean, nsys = pass_of(manifest, "clean"), pass_of(manifest, "nsys")
    assert code == 0, errors
    assert clean["result"]["samples_ns"] == []
    assert [m["name"] for m in clean["result"]["metrics"]] == ["program_time"]
    assert "no_steps_seen" in {w["code"] for w in clean["warnings"]}
    assert not any("capture-range" in word for word in nsys["command"])
    assert [c["kind"] for c in nsys["captures"]] == ["nsys_sqlite"]


def test_program_with_steps_is_captured_by_nsys_around_the_chosen_ones(profile, warm_python):
    _, manifest, _, errors = profile(SERVE, env={"FAKE": "1"}, python=warm_python)

    nsys = pass_of(manifest, "nsys")
    assert "--capture-range=cudaProfilerApi" in nsys["command"], errors
    assert nsys["notes"]["num_gpu_operations"] > 0


def test_a_program_that_nsys_ends_after_its_steps_gets_no_warning_of_its_end(profile, warm_python):
    words = ("--steps", "6", "--skip", "2", "--passes", "clean,nsys")
    _, manifest, _, errors = profile(
        SERVE, *words, words=["1000000000"], env={"FAKE": "1"}, python=warm_python
    )

    nsys = pass_of(manifest, "nsys")
    assert (nsys["returncode"], nsys["outcome"]) == (143, "ok"), errors
    assert "ended_after_result" not in {w["code"] for w in nsys["warnings"]}


def test_program_that_fails_before_any_step_is_a_failed_run_with_its_last_words(profile):
    code, manifest, _, errors = profile("raise ValueError('heads must divide width')")

    assert code == 1
    assert manifest["status"] == "failed"
    assert "heads must divide width" in manifest["error"]
    # That no steps were seen would send the reader the wrong way.
    assert "no_steps_seen" not in {w["code"] for w in pass_of(manifest, "clean")["warnings"]}
    assert "No steps" not in errors


def test_what_the_program_prints_is_passed_on_byte_by_byte(tmp_path):
    """Binary output of a pipe, a progress bar, and a prompt that ends no line."""
    program = (
        "import sys; out, err = sys.stdout.buffer, sys.stderr.buffer\n"
        r"out.write(b'\xff\xfe' + b'a' * 40_000 + b'\r\n\0'); out.flush()" "\n"
        r"err.write(b'\r 10%\r 20% caf\xe9')" "\n"
    )  # fmt: skip
    words = [sys.executable, "-c", program]

    bare = subprocess.run(words, capture_output=True, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "worker.profile", "--out", str(tmp_path / "bundle"),
         "--passes", "clean", "--", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        cwd=tmp_path, capture_output=True, timeout=240, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, bare.stdout), done.stderr
    assert bare.stderr + b"\nwarpboard: " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_keeps_what_was_measured(profile, tmp_path, number):
    out = tmp_path / "bundle"
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.profile", "--out", str(out), "--",
         sys.executable, str(written(tmp_path, MARKED)), "1000000000"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_NSYS": "/nowhere/nsys"},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    for _, line in zip(range(20), process.stdout, strict=False):
        assert line
    process.send_signal(number)
    for _line in process.stdout:
        pass
    code = process.wait(timeout=60)

    manifest = json.loads((out / "manifest.json").read_text())
    assert code == 130
    assert manifest["status"] == "done"
    assert len(pass_of(manifest, "clean")["result"]["samples_ns"]) >= 10


def test_process_that_reaches_the_time_limit_keeps_its_steps_and_the_passes_after_it(
    profile, warm_python
):
    options = ("--timeout", "20", "--passes", "clean,trace")

    code, manifest, _, errors = profile(
        SERVE.replace("0.002", "0.05"), *options, words=["1000000"], python=warm_python
    )

    clean, trace = pass_of(manifest, "clean"), pass_of(manifest, "trace")
    assert (code, manifest["status"]) == (0, "done"), errors
    assert len(clean["result"]["samples_ns"]) >= 10
    assert "time_limit" in [w["code"] for w in clean["warnings"]]
    # The program does not end by itself: once it has its steps, the pass ends it.
    assert len(trace["captures"]) == 1 and trace["duration_s"] < 20


@pytest.mark.parametrize(
    ("options", "told", "shown"),
    [
        (
            ("--skip", "20"),
            "made: 6; left out at the beginning: 20; left to measure: 0",
            "none left",
        ),
        (("--steps", "30", "--skip", "2"), "left to measure: 4 (`--steps` asks for 30)", "6 steps"),
    ],
)
def test_program_with_fewer_steps_than_asked_for_is_told_so(
    profile, warm_python, options, told, shown
):
    code, manifest, _, errors = profile(
        SERVE, "--passes", "clean", *options, words=["6"], python=warm_python
    )

    [warning] = [w for w in pass_of(manifest, "clean")["warnings"] if w["code"] == "few_steps"]
    assert (code, manifest["status"]) == (0, "done")
    assert told in warning["message"]
    assert shown in errors


def test_json_is_the_only_thing_on_standard_output(profile, tmp_path):
    code, _, printed, errors = profile(
        "import sys; print('to stdout'); print('to stderr', file=sys.stderr); sys.exit(6)",
        "--passes", "clean", "--json", words=(),
    )  # fmt: skip

    assert code == 6
    assert json.loads(printed) == {
        "schema_version": 1, "run": str(tmp_path / "bundle"), "status": "failed",
    }  # fmt: skip
    assert "to stdout\n" in errors and "to stderr\n" in errors


def test_secrets_and_the_home_folder_are_not_kept_with_the_run(profile, tmp_path):
    words = ["--hf-token", "hf_abc", "--api-key=xyz", "--lr", "1", str(Path.home() / "corpus")]

    profile("pass", "--passes", "clean", words=words)

    text = (tmp_path / "bundle" / "manifest.json").read_text()
    assert "hf_abc" not in text
    assert "xyz" not in text
    assert f"{Path.home()}/corpus" not in text
    assert '\\"--lr\\", \\"1\\"' in text


def test_wrong_destination_is_refused_before_the_program_runs(profile):
    begin = time.monotonic()

    code, manifest, _, errors = profile("import time; time.sleep(100)", "--token-file", "none")

    assert (code, manifest) == (2, None)
    assert "--token-file" in errors
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "/proc/nowhere/x", "--", "true"], "--out /proc/nowhere/x: No such file"),
        (["--", "./plain.py"], "a script needs its Python: -- python ./plain.py"),
        (["--", "./missing.py"], "'./missing.py' is not an executable program on this host"),
    ],
)
def test_wrong_words_are_refused_with_the_remedy(words, told, tmp_path):
    (tmp_path / "plain.py").write_text("print('done')\n")

    done = subprocess.run(
        [sys.executable, "-m", "worker.profile", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_NSYS": "/nowhere/nsys"},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert told in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("flag", "told"), [("-I", "ignores PYTHONPATH"), ("-u", "PyTorch module")])
def test_python_that_the_hooks_cannot_enter_is_told_from_one_without_pytorch(flag, told, tmp_path):
    (tmp_path / "plain.py").write_text("print('done')\n")

    done = subprocess.run(
        [sys.executable, "-m", "worker.profile", "--passes", "clean", "--out",
         str(tmp_path / "out"), "--", sys.executable, flag, str(tmp_path / "plain.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
             "WARPBOARD_DATA": str(tmp_path / "data"), "WARPBOARD_NSYS": "/nowhere/nsys"},
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    warnings = [w["message"] for p in manifest["passes"] for w in p.get("warnings", [])]
    assert sum(told in w for w in warnings) == 1


def git(folder, *words):
    name = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    done = subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_run_says_which_commit_its_folder_was_at_and_whether_files_differed(profile, tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "model.py").write_text("x = 1\n")
    git(tmp_path, "add", "model.py")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")[:12]

    found = profile("print('ran')", "--passes", "", words=())[1]["environment"]["commit"]

    assert found == commit
    seen = set()
    for value in (2, 3):
        (tmp_path / "model.py").write_text(f"x = {value}\n")
        seen.add(commit_of(tmp_path)["commit"])
    assert len(seen) == 2 and all(text.startswith(f"{commit} + changes ") for text in seen)


def test_folder_in_no_repository_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) == {}
    assert commit_of(tmp_path / "not there") == {}


def test_words_without_the_dashes_are_told_where_they_belong(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "worker.profile", "python", "train.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "put it after `--`" in done.stderr


def test_settings_of_the_users_shell_are_kept_with_the_run(profile, warm_python):
    shell = {"CUDA_MODULE_LOADING": "EAGER", "OMP_NUM_THREADS": "2", "LD_X": "1"}
    shell |= {"NVIDIA_TF32_OVERRIDE": "odd"}

    code, manifest, _, errors = profile(
        "print(1)", "--passes", "clean", env=shell, python=warm_python
    )

    assert code == 0, errors
    assert manifest["job"]["params"]["settings"] == "CUDA_MODULE_LOADING=EAGER OMP_NUM_THREADS=2"
