"""Programs that launchers, kernels and loaders start, and that end in every way, run as without."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worker.own_program import OwnProgram
from worker.process import ProcessResult
from worker.profile.records import Process, load_processes
from worker.profile.steps import find_steps

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import os, sys, torch
torch.set_num_threads(1)
net = torch.nn.Linear(8, 8)
if os.environ.get("WORLD_SIZE"):
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(6):
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
sys.stdout.write(f"trained {os.environ.get('RANK', '-')} {sys.argv[1:]}\\n")
"""


class Ran:
    """How a program ran under the hooks of the clean pass."""

    def __init__(self, done: "subprocess.CompletedProcess[str]", own: OwnProgram, folder: Path):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        (folder / "out.txt").write_text(done.stdout)
        ended = ProcessResult(
            returncode=done.returncode, duration_s=1.0,
            stdout_path=folder / "out.txt", stderr_path=folder / "err.txt",
        )  # fmt: skip
        self.result: dict[str, Any] = own.result("clean", folder, ended, {})
        self.processes: list[Process] = load_processes(folder / "hooks")

    @property
    def steps(self) -> list[tuple[int | None, str, int]]:
        """Rank, kind and number of the steps of each process that has some."""
        found = [(p.facts.get("rank"), find_steps(p)) for p in self.processes]
        return sorted((rank, kinds[0].kind, len(kinds[0])) for rank, kinds in found if kinds)


def run(folder: Path, *words: str, python: str = sys.executable) -> Ran:
    own = OwnProgram(words=[python, *words])
    env = own.environment("clean", folder) | {"WARPBOARD_HOOKS_DEBUG": "1"}
    env["PYTHONPATH"] += os.pathsep + str(folder)
    done = subprocess.run(
        own.argv, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    return Ran(done, own, folder)


@pytest.mark.slow
def test_torchrun_gives_a_record_of_each_rank_and_the_run_of_rank_0(
    tmp_path: Path, warm_python: str
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    ran = run(
        tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        str(tmp_path / "train.py"), "--epochs", "1", python=warm_python,
    )  # fmt: skip

    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == [f"trained {r} ['--epochs', '1']" for r in (0, 1)]
    assert ran.steps == [(0, "training", 6), (1, "training", 6)]
    assert ran.result["environment"]["ranks"] == 2
    assert ran.result["steps"]["title"].startswith("training step of Linear")


@pytest.mark.slow
def test_torchrun_whose_rank_fails_ends_as_without(tmp_path: Path, warm_python: str) -> None:
    (tmp_path / "fail.py").write_text("import os, sys; sys.exit(3 * int(os.environ['RANK']))")

    ran = run(
        tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        str(tmp_path / "fail.py"), python=warm_python,
    )  # fmt: skip

    assert ran.code == 1
    assert "ChildFailedError" in ran.err


def test_launcher_that_starts_the_script_in_a_child_of_its_own(
    tmp_path: Path, warm_python: str
) -> None:
    """As `accelerate launch` does: a module that imports torch, and runs the script by Popen."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys, torch\n"
        "child = subprocess.Popen([sys.executable, *sys.argv[1:]])\n"
        "sys.exit(child.wait())\n"
    )

    ran = run(tmp_path, "-m", "launch", str(tmp_path / "train.py"), "--fp16", python=warm_python)

    assert (ran.code, ran.out) == (0, "trained - ['--fp16']\n"), ran.err
    assert ran.steps == [(None, "training", 6)]


def test_kernel_that_executes_cells_in_its_event_loop(tmp_path: Path, warm_python: str) -> None:
    """As a Jupyter kernel does: a module whose loop executes text, cell after cell."""
    (tmp_path / "kernel.py").write_text(
        "import asyncio, json, sys\n"
        "async def serve(cells):\n"
        "    shared = {'__name__': '__main__'}\n"
        "    for number, cell in enumerate(cells):\n"
        "        await asyncio.sleep(0)\n"
        "        exec(compile(cell, f'<ipython-input-{number}>', 'exec'), shared)\n"
        "asyncio.run(serve(json.loads(sys.argv[1])))\n"
    )
    setup, _, loop = TRAIN.partition("for _")

    cells = json.dumps([setup, f"for _{loop}", "print(type(net))"])
    ran = run(tmp_path, "-m", "kernel", cells, python=warm_python)

    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[1:] == ["<class 'torch.nn.modules.linear.Linear'>"]
    assert ran.steps == [(None, "training", 6)]


@pytest.mark.slow
def test_spawned_workers_of_a_data_loader_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(
        "import torch\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i):\n"
        "        with torch.no_grad(): return torch.nn.Linear(4, 4)(torch.ones(1, 4)) + i\n"
        "if __name__ == '__main__':\n"
        "    net = torch.nn.Linear(4, 4)\n"
        "    loader = torch.utils.data.DataLoader(\n"
        "        Data(), batch_size=2, num_workers=1, multiprocessing_context='spawn')\n"
        "    print(sum(net(x).numel() for x in loader))\n"
    )

    ran = run(tmp_path, str(tmp_path / "load.py"))

    assert (ran.code, ran.out) == (0, "32\n"), ran.err
    assert ran.steps == [(None, "inference", 4)]


ENDS = {
    "pass": 0,
    "sys.exit(3)": 3,
    "sys.exit('no')": 1,
    "raise ValueError('no')": 1,
    "os._exit(7)": 7,
    "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)": -signal.SIGTERM,
    "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)": -signal.SIGINT,
    "os.abort()": -signal.SIGABRT,
    "signal.signal(15, lambda *_: sys.exit(5)); os.kill(os.getpid(), 15); time.sleep(60)": 5,
    "pid = os.fork(); os._exit(9) if not pid else sys.exit(os.waitpid(pid, 0)[1] >> 8)": 9,
}
"""How a program may end -> its exit code, which is that without the hooks."""


@pytest.mark.parametrize("end", ENDS)
def test_steps_outlive_every_end_and_the_exit_code_is_the_programs(
    tmp_path: Path, end: str
) -> None:
    (tmp_path / "warpboard_marks.py").write_bytes((ROOT / "warpboard_marks.py").read_bytes())
    script = (
        "import os, signal, sys, time; from warpboard_marks import step\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have it ignored
        "for _ in range(5):\n"
        "    with step(): time.sleep(0.001)\n"
        "time.sleep(0.006)\n"
        "with step(): pass\n"
        f"{end}\n"
    )

    ran = run(tmp_path, "-c", script)

    assert ran.code == ENDS[end], ran.err
    # A signal that cannot be caught takes the records of the last five milliseconds with it.
    [(_, kind, num_steps)] = ran.steps
    assert (kind, num_steps >= 5) == ("marked", True)
    assert ran.result["status"] == "ok"
