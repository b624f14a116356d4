"""`python -m worker.ranks`: ranks start as under torchrun, and end together in every fault."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.config import ROOT
from core.errors import UserError
from core.spec import JobSpec
from tests.processes import is_alive
from worker import run_bundle
from worker.outcomes import OutcomeCode, judge, load_result, tail_text
from worker.passes import GpuTarget
from worker.process import ProcessLimits, ProcessResult, run_process
from worker.ranks import RankProcess, how_far
from worker.targets import join_targets

RESULT = {"schema_version": 1, "workload": "w", "pass": "clean", "status": "ok"}
SAY = "import json, os, sys, time, signal; rank = int(os.environ['RANK'])\n"
PUT = "def put(**more): print(json.dumps({**" + repr(RESULT) + ", **more}), flush=True)\n"
LIVE_ON = "time.sleep(60)\n"


def launch(tmp_path: Path, body: str, *, num_ranks: int = 2, soft_s: float = 20.0) -> ProcessResult:
    """Run a launcher whose ranks are small Python programs; they leave their pid in a file."""
    plan = []
    for rank in range(num_ranks):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        pid = f"open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        plan.append(
            {
                "command": [sys.executable, "-c", SAY + PUT + pid + body],
                "folder": str(folder),
                "events": str(folder / "events.jsonl"),
            }
        )
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    return run_process(
        [sys.executable, "-m", "worker.ranks", str(tmp_path / "plan.json")],
        stdout_path=tmp_path / "stdout.txt",
        stderr_path=tmp_path / "stderr.txt",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        limits=ProcessLimits(soft_s=soft_s, grace_s=3.0),
    )


def result_of(done: ProcessResult) -> dict:
    result = load_result(done.stdout_path)
    assert result is not None, done.stderr_path.read_text()
    return result


def alive(tmp_path: Path) -> list[int]:
    """Return the ranks' processes that still run."""
    pids = [int(path.read_text()) for path in tmp_path.glob("rank*/pid")]
    return [pid for pid in pids if is_alive(pid)]


def test_ranks_get_torchruns_environment_and_nvlink_multicast_off(tmp_path):
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NCCL_NVLS_ENABLE"]
    body = f"put(environment={{n: os.environ[n] for n in {names!r}}}, samples_ns=[rank])"

    launch(tmp_path, body)

    seen = [json.loads((tmp_path / f"rank{r}/result.json").read_text()) for r in range(2)]
    first, second = (s["environment"] for s in seen)
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"]) for e in (first, second)] == [
        ("0", "0", "2"),
        ("1", "1", "2"),
    ]
    assert first["MASTER_ADDR"] == "127.0.0.1" and first["MASTER_PORT"] == second["MASTER_PORT"]
    assert first["NCCL_NVLS_ENABLE"] == "0"


def test_an_iteration_is_as_long_as_its_slowest_rank(tmp_path):
    body = (
        "put(samples_ns=[[10, 40], [30, 20]][rank], memory={'peak_allocated_bytes': [7, 5][rank]},"
        " metrics=[{'name': 'bus', 'value': [4.0, 2.0][rank], 'unit': 'GB/s', 'phase': ''}],"
        " phase_samples_ns={'forward': [[1, 9], [5, 2]][rank]})"
    )

    result = result_of(launch(tmp_path, body))

    assert result["status"] == "ok"
    assert result["samples_ns"] == [30, 40]
    assert result["phase_samples_ns"] == {"forward": [5, 9]}
    assert result["memory"] == {"peak_allocated_bytes": 7}
    assert result["metrics"][0]["value"] == 3.0
    assert [r["samples_ns"] for r in result["ranks"]] == [[10, 40], [30, 20]]


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (
            "put(status='failed', error='bad weights'); sys.exit(3)",
            "workload_failed",
            "rank 1: bad",
        ),
        ("put(status='oom', oom={'where': 'device'})", "oom", "GPU memory"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "workload_failed", "rank 1 was killed"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "workload_failed", "rank 1: ended by SIGSEGV"),
        ("sys.exit(0)", "workload_failed", "rank 1: ended with code 0 and without a result"),
    ],
)
def test_a_rank_that_fails_ends_the_others_and_is_named(tmp_path, fault, code, words):
    done = launch(tmp_path, f"if rank == 1: {fault}\nelse: {LIVE_ON}")

    outcome = judge(
        result=done,
        text=tail_text(done.stderr_path, done.stdout_path),
        workload_result=result_of(done),
    )
    assert outcome.code == OutcomeCode(code)
    assert words in outcome.message
    assert done.duration_s < 30  # the others would live for 60
    assert alive(tmp_path) == []


def test_a_rank_that_lost_its_neighbour_is_not_the_cause(tmp_path):
    lost = "put(status='failed', error='DistBackendError: Connection closed by peer'); sys.exit(3)"
    body = f"if rank == 0: {lost}\ntime.sleep(0.3)\nput(status='oom', oom={{'where': 'device'}})"

    result = result_of(launch(tmp_path, body))

    assert result["status"] == "oom"
    assert result["oom"]["rank"] == 1


def test_a_time_out_ends_all_ranks_and_says_how_far_each_was(tmp_path):
    events = "open(os.path.join(os.path.dirname(PID), 'events.jsonl'), 'w').write(json.dumps("
    body = (
        f"PID = {str(tmp_path)!r} + f'/rank{{rank}}/pid'\n{events}"
        "{'event': 'progress', 'stage': 'measure', 'done': 3 + rank, 'total': 20}) + '\\n')\n"
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{LIVE_ON}"
    )

    done = launch(tmp_path, body, soft_s=3.0)

    assert done.timed_out
    said = done.stderr_path.read_text()
    assert "ranks when stopped: rank 0 measure 3/20, rank 1 measure 4/20" in said
    assert alive(tmp_path) == []


def test_a_rank_that_the_stop_itself_ended_is_as_far_as_it_said(tmp_path):
    """A time limit tells the launcher and its ranks at once: a rank may be gone first."""
    ranks = []
    for number in (0, 1):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        process.terminate()
        process.wait()
        events = tmp_path / f"{number}.json"
        events.write_text(json.dumps({"stage": "measure", "done": 3, "total": 20}) + "\n")
        ranks.append(RankProcess(number, process, tmp_path, events))
    ranks[1].result = {"status": "ok"}

    assert how_far(ranks) == "rank 0 measure 3/20, rank 1 ended"


def test_no_rank_outlives_a_launcher_that_is_killed(tmp_path):
    folder = tmp_path / "rank0"
    folder.mkdir()
    code = f"import os, time; open({str(folder / 'pid')!r}, 'w').write(str(os.getpid())); {LIVE_ON}"
    plan = [{"command": [sys.executable, "-c", code], "folder": str(folder), "events": "none"}]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    launcher = subprocess.Popen(
        [sys.executable, "-m", "worker.ranks", str(tmp_path / "plan.json")], cwd=ROOT
    )
    deadline = time.monotonic() + 20
    while not (folder / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    launcher.send_signal(signal.SIGKILL)
    launcher.wait()

    while alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(tmp_path) == []


def test_a_job_of_two_ranks_leaves_one_bundle_with_a_trace_of_the_chosen_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: str
) -> None:
    monkeypatch.setenv("WARPBOARD_PYTHON", warm_python)
    sets = ["gpus=2", "parallel=ddp", "mode=train_step", "preset=tiny", "profiled_ranks=1"]
    sets += ["iterations=3", "warmup=1", "straggler_rank=1", "straggler_ms=30"]
    words = [word for value in sets for word in ("--set", value)]

    code = run_bundle.main(
        [
            "transformer",
            "--gpu",
            "cpu",
            *words,
            "--profilers",
            "trace",
            "--out",
            str(tmp_path / "b"),
        ]
    )

    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert code == 0, (tmp_path / "b" / "log.txt").read_text()
    clean, trace = manifest["passes"]
    assert [(c["file"], c["rank"]) for c in trace["captures"]] == [("trace-0-rank1.json.gz", 1)]
    assert [r["rank"] for r in clean["result"]["ranks"]] == [0, 1]
    # The straggler's sleep is in every iteration, and the other rank waits for its gradients.
    assert min(clean["result"]["samples_ns"]) > 30_000_000
    assert manifest["environment"]["nccl_nvls_enable"] == "0"
    assert manifest["environment"]["collectives"] == "gloo"


def test_too_few_gpus_are_refused_and_those_of_one_model_are_joined() -> None:
    def gpu(model: str, uuid: str) -> tuple[str, GpuTarget]:
        facts = {"model": model, "uuid": uuid}
        return model, GpuTarget(visible_devices=uuid, smi_selector=uuid, facts=facts)

    here = [gpu("H100", "GPU-a"), gpu("4090", "GPU-b"), gpu("H100", "GPU-c")]

    model, both = join_targets(here, 2)

    assert (model, both.visible_devices) == ("H100", "GPU-a,GPU-c")
    with pytest.raises(UserError, match="gpus: 3 wanted, 2 of H100"):
        join_targets(here, 3)
    assert join_targets([("cpu", GpuTarget())], 8)[0] == "cpu"


def test_ncu_is_refused_for_several_gpus() -> None:
    with pytest.raises(UserError, match="ncu replays kernels one at a time"):
        JobSpec(workload="allreduce", params={"gpus": 2}, profilers=("ncu",))
