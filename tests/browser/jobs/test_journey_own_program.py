"""In a real browser: an own program, profiled twice without a change to it, and compared."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from core.config import ROOT, DataDir
from tests.app.conftest import Cli
from tests.browser import steps
from worker.hooks.warpboard_facts import usable_cores

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


def write_program(path: Path, last: str = "", first: str = "torch.set_num_threads(1)") -> None:
    """Write a training loop that knows nothing of profiling; its argument is its width."""
    path.write_text(
        f"""
import os
import sys

import torch

{first}
width = int(sys.argv[1])
net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(24):
    loss = net(torch.ones(64, width)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
        + last
    )


def profile(data: Path, name: str, python: str, program: Path, width: int) -> None:
    command = [sys.executable, "-m", "app.cli", "--data", str(data), "profile", "--name", name]
    command += ["--passes", "clean,trace", "--steps", "12", "--quiet", "--"]
    command += [python, str(program), str(width)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_own_program_is_profiled_and_compared_with_its_slower_self(
    page: Any,
    dashboard: str,
    dashboard_data: Path,
    warm_python: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "own.py"
    write_program(program)
    for name, width in (("own-narrow", 128), ("own-wide", 1024)):
        profile(dashboard_data, name, warm_python, program, width)

    page.goto(f"{dashboard}/run?run_id=own-wide")
    assert "CPU run" in steps.verdict(page)
    with steps.presses_at_most(page, 2):
        page.get_by_role("button", name="Compare with").click()
        page.get_by_role("button", name="Compare", exact=True).click()
        page.wait_for_url(re.compile(r"/compare\?.*a=.*b="))
        seen = steps.verdict(page)
    assert "own-wide" in seen or "A:" in seen
    assert Cli(DataDir(root=dashboard_data), capsys)("show", "own-narrow") == 0
    steps.no_fault(page)


def test_a_worker_runs_an_own_program_with_two_settings_and_they_are_compared(
    page: Any,
    dashboard: str,
    dashboard_data: Path,
    warm_python: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = dashboard_data.parent / "own" / "set.py"
    program.parent.mkdir(exist_ok=True)
    write_program(program, "print('override', os.environ['NVIDIA_TF32_OVERRIDE'])")
    cli = Cli(DataDir(root=dashboard_data), capsys)
    params = {
        "name": "own-set",
        "argv": json.dumps([warm_python, str(program), "64"]),
        "metrics": json.dumps(["override ([01])"]),
        "settings": "NVIDIA_TF32_OVERRIDE=0,NVIDIA_TF32_OVERRIDE=1",
    }
    words = [word for name, text in params.items() for word in ("--set", f"{name}={text}")]
    assert cli("submit", "command", "--gpu", "cpu", "--profilers", "", "--wait", *words) == 0

    names = [f"own-set settings=NVIDIA_TF32_OVERRIDE={value}" for value in "01"]
    printed = [cli.json("show", name)["metrics"] for name in names]
    page.goto(f"{dashboard}/compare?a={quote(names[0])}&b={quote(names[1])}")
    steps.verdict(page)

    values = [next(m["value"] for m in ms if m["name"] == "override") for ms in printed]
    assert values == [0, 1]
    change = "settings NVIDIA_TF32_OVERRIDE=0 \u2192 NVIDIA_TF32_OVERRIDE=1"
    page.get_by_text(change).first.wait_for(timeout=60_000)
    steps.no_fault(page)


def test_from_an_own_program_to_a_setting_that_was_tried_and_its_score(
    page: Any,
    dashboard: str,
    dashboard_data: Path,
    warm_python: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if usable_cores() < 2:
        pytest.skip("threads are offered where a process may use two cores or more")
    program = dashboard_data.parent / "own" / "threads.py"
    program.parent.mkdir(exist_ok=True)
    write_program(program, first="")
    cli = Cli(DataDir(root=dashboard_data), capsys)
    argv = json.dumps([warm_python, str(program), "512"])
    words = ["--set", f"argv={argv}", "--set", "name=own-threads", "--profilers", "trace"]
    words += ["--set", "settings=OMP_NUM_THREADS=1", "--gpu", "cpu", "--wait"]
    [run] = cli.json("submit", "command", *words)["runs"]

    page.goto(f"{dashboard}/run?run_id={run['id']}&tab=Advice")
    page.get_by_role("button", name="Try it").first.wait_for()
    with steps.presses_at_most(page, 2):  # one, and one more where the page was drawn anew
        steps.try_it(page, "threads")
    page.get_by_text(re.compile("measured .*: (hit|missed)")).first.wait_for(timeout=steps.RUN_MS)
    with steps.presses_at_most(page, 1):
        page.get_by_role("link", name="How predictions fared so far").click()
        page.get_by_role("heading", name="Every prediction and its outcome").wait_for()

    steps.no_fault(page)
    score = cli.json("advise", "--score")
    assert ("threads (CPU)", "threads") in {(p["kind"], p["experiment"]) for p in score["pairs"]}
