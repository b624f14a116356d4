"""A program that cannot go on says why in one line: memory, input, tools, permission."""

import json
import os
import signal
import subprocess
import sys

from core.config import ROOT
from tests.workloads.program import run_program

ENOUGH_FOR_FORWARD_GIB = 0.35


def test_running_out_of_memory_in_the_build_is_a_result(tmp_path):
    spec = {"preset": "llama-7b-layer", "memory_cap_gib": 0.25}

    done = run_program("decode", spec=spec, out=tmp_path)

    oom = done.result["oom"]
    assert (done.returncode, done.result["status"]) == (0, "oom")
    assert (oom["phase"], oom["where"]) == ("build", "host")
    assert oom["requested_bytes"] > 30_000_000
    assert oom["limit_bytes"] == 2**28


def test_running_out_of_memory_names_the_phase_it_happened_in(tmp_path):
    spec = {"preset": "tiny", "implementation": "naive", "seq_len": 8192, "heads": 4,
            "memory_cap_gib": 0.5}  # fmt: skip

    done = run_program("attention", spec=spec, out=tmp_path)

    oom = done.result["oom"]
    assert done.result["status"] == "oom"
    assert (oom["phase"], oom["stage"]) == ("forward", "warmup")
    assert oom["requested_bytes"] == 4 * 8192 * 8192 * 4


def test_wrong_params_end_with_2_and_one_line(tmp_path):
    done = run_program("decode", spec={"layers": "x"}, out=tmp_path)

    assert done.returncode == 2
    assert done.stderr == "decode: layers=x is not a whole number\n"
    assert done.result["status"] == "failed"


def test_spec_that_is_not_json_is_said_with_its_place(tmp_path):
    (tmp_path / "spec.json").write_text('{"layers": 1,')

    done = run_program("decode", "--spec", f"@{tmp_path}/spec.json", out=tmp_path)

    assert done.returncode == 2
    assert "spec.json: not JSON" in done.stderr


def test_triton_on_a_cpu_names_what_to_choose(tmp_path):
    spec = {"preset": "tiny", "implementation": "triton"}

    done = run_program("gemm", spec=spec, out=tmp_path)

    assert done.returncode == 3
    assert "implementation=cublas" in done.result["error"]
    assert done.result["outcome"] == "tool_missing"


def test_own_program_is_off_until_the_operator_names_it(tmp_path):
    spec = {"argv": json.dumps([sys.executable, "-c", "pass"]), "iterations": 2}

    done = run_program("command", spec=spec, out=tmp_path)

    assert done.returncode == 3
    assert "WARPBOARD_ALLOW_COMMANDS" in done.result["error"]


def test_link_to_an_allowed_name_is_judged_by_where_it_leads(tmp_path):
    link = tmp_path / "true"
    link.symlink_to("/bin/ls")
    spec = {"argv": json.dumps([str(link)]), "iterations": 2}

    done = run_program(
        "command", spec=spec, out=tmp_path, WARPBOARD_ALLOW_COMMANDS=os.path.realpath("/bin/true")
    )

    assert done.returncode == 3
    assert os.path.realpath("/bin/ls") in done.result["error"]


def test_allowed_program_gets_its_words_as_they_are(tmp_path):
    script = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
    written = tmp_path / "words"
    words = [sys.executable, "-c", script, str(written), "$(id); *"]
    spec = {"argv": json.dumps(words), "iterations": 2, "warmup": 0, "cwd": str(tmp_path)}

    done = run_program(
        "command", spec=spec, out=tmp_path,
        WARPBOARD_ALLOW_COMMANDS=sys.executable, WARPBOARD_ALLOW_FOLDERS=str(tmp_path),
    )  # fmt: skip

    assert done.result["status"] == "ok", done.stderr
    assert len(done.result["samples_ns"]) == 2
    assert written.read_text() == "$(id); *" * 2


def test_own_program_that_fails_is_a_failed_run(tmp_path):
    words = [sys.executable, "-c", "raise SystemExit(7)"]

    done = run_program(
        "command", spec={"argv": json.dumps(words)}, out=tmp_path,
        WARPBOARD_ALLOW_COMMANDS=sys.executable,
    )  # fmt: skip

    assert done.returncode == 3
    assert "exit code 7" in done.result["error"]


def test_sigterm_ends_the_program_in_the_middle_of_a_run(tmp_path):
    spec = json.dumps({"preset": "tiny", "iterations": 100_000})
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "workloads", "decode", "--spec", spec]
    with subprocess.Popen(
        [*command, "--events-fd", str(writer)], cwd=ROOT, pass_fds=[writer],
        stdout=subprocess.DEVNULL,
    ) as child:  # fmt: skip
        os.close(writer)
        first_event = os.read(reader, 4096)
        child.send_signal(signal.SIGTERM)

        assert b"progress" in first_event
        assert child.wait(timeout=60) == -signal.SIGTERM
    os.close(reader)
