"""One served dashboard with its worker for the journeys, and a Chromium to look at it."""

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.demo.load import FOLDER
from app.stack import free_port
from tests.workloads.program import COMPILE_LITTLE

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 120.0
SLOWEST_MS = 120_000
"A limit for what hangs: on a busy machine a page may well take a minute."

PAGES_ARE_SHORT_LIVED = ("--js-flags=--no-opt --no-maglev", "--renderer-process-limit=1")
"""To optimise the scripts of a page, or start a process for each, costs more than it gains."""

STAND_STILL = """addEventListener('DOMContentLoaded', () => {
  const style = document.createElement('style')
  style.textContent = `*, *::before, *::after {
    animation-duration: 0s !important;
    animation-delay: 0s !important;
    animation-iteration-count: 1 !important;
  }`
  document.head.append(style)
})"""
"""What moves without an end is drawn sixty times a second while a journey waits."""

COUNT_PRESSES = """addEventListener('pointerdown', event => {
  if (event.isTrusted) sessionStorage.presses = 1 + Number(sessionStorage.presses ?? 0)
}, true)"""
"""Each press of the mouse is counted for its tab: a journey has a budget of them."""


def chromium_path() -> str | None:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="package")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a Chromium with a profile: what it compiled of the pages' scripts it keeps."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium on PATH")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", *PAGES_ARE_SHORT_LIVED],
            viewport={"width": 1440, "height": 1000},
            reduced_motion="reduce",
        )
        found.set_default_timeout(SLOWEST_MS)
        found.add_init_script(COUNT_PRESSES)
        found.add_init_script(STAND_STILL)
        yield found
        found.close()


@pytest.fixture(scope="package")
def dashboard_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of `dashboard`."""
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="package")
def dashboard(context: Any, dashboard_data: Path, warm_python: str) -> Iterator[str]:
    """Run `warpboard up` on an empty data directory."""
    folder = dashboard_data.parent
    port, log = free_port(), folder / "up.log"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env["WARPBOARD_PYTHON"] = str(workers_python(folder / "python", warm_python))
    env["WARPBOARD_PERFETTO_UI"] = str(Path(__file__).parent / "perfetto_stand_in")
    env["WARPBOARD_ALLOW_COMMANDS"] = f"{warm_python} {folder / 'own'}/"
    env["WARPBOARD_EXAMPLES"] = str(few_examples(folder / "examples"))
    env |= COMPILE_LITTLE
    command = [sys.executable, "-m", "app.cli", "up", "--port", str(port), "--no-demo"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--data", str(dashboard_data)], cwd=ROOT, env=env, stdout=out, stderr=out
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for_health(url, process, log)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


def workers_python(path: Path, warm_python: str) -> Path:
    """Write a Python that runs jobs without PyTorch where no journey looks at their numbers.

    Its import takes longer than such a job: attention without a limit of its memory, gemm, and jobs
    of very many iterations, which are there to be cancelled. Others fork from where it is imported,
    but for those whose limit of memory is that of a process which the worker starts.
    """
    replayed = """*' attention '* | *' gemm '* | *'"iterations": 100000'*"""
    path.write_text(f"""#!/bin/sh
case " $* " in
  *'"memory_cap_gib": 8'*) ;;
  {replayed}) exec {sys.executable} {ROOT}/tests/fake_tools/fake_python "$@" ;;
  ' -m workloads '* | ' -P -c '*) exec {warm_python} "$@" ;;
esac
exec {sys.executable} "$@"
""")
    path.chmod(0o755)
    return path


def few_examples(folder: Path) -> Path:
    """Return a folder with the example runs of single captures: the archives have 15 times more."""
    folder.mkdir()
    named, _, _ = (FOLDER / "demo.toml").read_text(encoding="utf-8").partition("[[archive]]")
    (folder / "demo.toml").write_text(named, encoding="utf-8")
    (folder / "data").symlink_to(FOLDER / "data")
    return folder


@pytest.fixture(scope="module")
def page(context: Any) -> Iterator[Any]:
    """Return the page of a file's journeys: the next one goes on where the last one ended."""
    found = context.new_page()
    yield found
    for opened in context.pages:
        opened.close()


@pytest.fixture
def stranger(context: Any) -> Iterator[Any]:
    """Return a page of a browser context that has seen nothing yet."""
    fresh = context.browser.new_context(viewport={"width": 1440, "height": 1000})
    fresh.set_default_timeout(SLOWEST_MS)
    yield fresh.new_page()
    fresh.close()


def wait_for_health(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            with opener.open(f"{url}/_stcore/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the dashboard does not answer:\n{log.read_text(errors='replace')[-3000:]}")
