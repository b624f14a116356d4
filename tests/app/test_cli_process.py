"""The command line as a process: pipes that close, Ctrl-C, folders that are read-only."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.config import ROOT, DataDir
from db.connection import opened
from tests.app.conftest import Cli
from tests.conftest import H100

CLI = (sys.executable, "-m", "app.cli")
EAGER = str(H100 / "nsys" / "decode_eager.sqlite")


def environment(data: Path) -> dict[str, str]:
    own = {"WARPBOARD_DATA": str(data), "WARPBOARD_PYTHON": "/bin/false"}  # no PyTorch to start
    return {**os.environ, "PYTHONPATH": str(ROOT), **own}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["classify", "a" * 100_000]])
def test_reader_that_goes_away_ends_it_without_a_word(tmp_path: Path, words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(
        [*CLI, *words], stdout=write, stderr=subprocess.PIPE, env=environment(tmp_path), check=False
    )
    os.close(write)
    assert (found.returncode, found.stderr) == (0, b"")


def test_ctrl_c_of_a_job_that_is_waited_for_is_one_line(data_dir: DataDir) -> None:
    words = ["submit", "decode", "--gpu", "cpu", "--wait", "--json"]
    # A broker elsewhere: nothing is started here, and nobody takes the job.
    env = environment(data_dir.root) | {"WARPBOARD_BROKER": "filesystem://"}
    process = subprocess.Popen(
        [*CLI, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
    )
    assert process.stderr is not None
    while "no worker serves cpu now" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err.splitlines()[-1]) == (130, "warpboard: stopped")
    assert "warpboard cancel" in err
    assert json.loads(out)["exit_code"] == 130


def where_nothing_may_be_written(data: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line with a data folder that is mounted read-only; skip where none can be."""
    mount = f"mount --bind {data} {data} && mount -o remount,bind,ro {data}"
    command = ["unshare", "-m", "sh", "-c", f'{mount} || exit 77; exec "$@"', "sh", *CLI, *words]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, env=environment(data), cwd=ROOT, check=False
        )
    except FileNotFoundError:
        pytest.skip("no unshare")
    if found.returncode == 77 or "unshare" in found.stderr:
        pytest.skip("mounting is not permitted")
    return found


def test_runs_are_listed_and_shown_where_nothing_may_be_written(
    cli: Cli, data_dir: DataDir
) -> None:
    cli.json("import", EAGER, "--name", "mine")
    listed = where_nothing_may_be_written(data_dir.root, "runs", "--json")
    assert json.loads(listed.stdout)["runs"][0]["name"] == "mine", listed.stderr
    shown = where_nothing_may_be_written(data_dir.root, "show", "mine", "--json")
    assert json.loads(shown.stdout)["summary"]["num_kernels"] > 0
    (data_dir.root / "stack.lock").touch()
    checked = where_nothing_may_be_written(data_dir.root, "doctor", "--json")
    faults = {c["name"] for c in json.loads(checked.stdout)["checks"] if not c["is_ok"]}
    assert checked.returncode == 1 and "data" in faults and "database" not in faults
    refused = where_nothing_may_be_written(data_dir.root, "tag", "mine", "x")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_database_is_read_with_what_is_only_in_its_log(
    data_dir: DataDir, make_run: object, tmp_path: Path, is_checkpointed: bool
) -> None:
    from db.connection import open_read_only

    assert callable(make_run)
    make_run("in the log")
    with opened(data_dir.db_path) as db:
        if is_checkpointed:
            db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for name in ("warpboard.db", "warpboard.db-wal"):
            shutil.copyfile(data_dir.root / name, tmp_path / name)
    found = open_read_only(tmp_path / "warpboard.db")
    assert found.execute("SELECT name FROM runs").fetchone() == ("in the log",)
    found.close()


@pytest.mark.parametrize("command", ["runs", "tag", "pin", "delete"])
def test_light_command_imports_no_pandas(command: str, tmp_path: Path) -> None:
    words = {"runs": [], "delete": ["x"], "pin": ["x"]}.get(command, ["x", "y"])
    code = f"""
import sys
from app.cli.main import main
main({[command, *words]!r})
sys.exit("pandas" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_closed_stdout_is_no_fault_and_a_full_one_is(tmp_path: Path) -> None:
    codes = []
    for target in (">&-", "> /dev/full"):
        command = ["sh", "-c", f'"$@" {target}', "sh", *CLI, "classify", "a"]
        codes.append(subprocess.run(command, env=environment(tmp_path), check=False).returncode)
    assert codes == [0, 2]
