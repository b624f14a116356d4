"""What a person at the terminal reads: names, filters and differences as they are meant."""

import io
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from analysis.compare.engine import compare
from app.cli.compare_text import compare_lines
from app.cli.main import _refused
from app.imports import run_name
from core.config import DataDir
from tests.analysis.compare.views import build_view
from tests.app.conftest import Cli
from tests.conftest import H100

EAGER = str(H100 / "nsys" / "decode_eager.sqlite")


def test_a_filter_may_begin_with_a_minus(cli: Cli) -> None:
    cli.json("import", EAGER)

    assert cli.json("runs", "--filter", "-tag:old")["total"] == 1
    assert cli.json("runs", "--filter", "-gpu:h100")["total"] == 0


def test_no_rows_shown_are_not_called_no_runs(cli: Cli) -> None:
    cli.json("import", EAGER)

    assert cli("runs", "--limit", "0") == 0
    assert cli.err.strip() == "0 of 1; --limit shows more"


def test_a_name_cannot_break_a_line_or_steer_the_terminal(cli: Cli, data_dir: DataDir) -> None:
    run_id = cli.json("import", EAGER, "--name", "two\nlines \x1b")["run_id"]
    assert cli.json("show", "two lines")["run"]["id"] == run_id
    with closing(sqlite3.connect(data_dir.db_path)) as db:
        db.execute("UPDATE runs SET name = ?", ["two\nlines \x1b[31m"])
        db.commit()

    for words in (["runs"], ["show", run_id], ["compare", run_id, run_id]):
        assert cli(*words) == 0
        assert "two lines" in cli.out and "\x1b" not in cli.out


def test_a_file_name_that_is_no_text_becomes_a_name_that_is(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xfflate\nncy.csv")
    path.write_text("latency_ms\n1.0\n")

    run_id = cli.json("import", str(path))["run_id"]

    assert cli.json("show", run_id)["run"]["name"] == "late ncy"


@pytest.mark.parametrize("words", [["import", EAGER], ["submit", "gemm"]])
def test_a_name_longer_than_a_line_is_refused(cli: Cli, words: list[str]) -> None:
    assert cli(*words, "--name", "x" * 1000) == 2
    assert "has 1000 characters, at most 200" in cli.err


def test_a_run_is_named_before_an_id_that_begins_so(cli: Cli) -> None:
    run_id = cli.json("import", EAGER, "--name", "r1")["run_id"]
    cli.json("import", str(H100 / "nsys" / "no_gpu_work.sqlite"))

    assert cli.json("show", "r1")["run"]["id"] == run_id


def test_only_runs_with_captures_are_read_again(cli: Cli) -> None:
    cli.json("submit", "gemm", "--name", "waiting")

    assert cli("reparse", "waiting") == 2
    assert "no stored captures to read again" in cli.err


def test_a_database_damaged_inside_is_one_line_and_exit_code_2(cli: Cli, data_dir: DataDir) -> None:
    run_id = cli.json("import", EAGER)["run_id"]
    with closing(sqlite3.connect(data_dir.db_path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = db.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'kernels'"
        (page,) = db.execute(query).fetchone()
    with data_dir.db_path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)

    assert cli("show", run_id) == 2
    assert "damaged" in cli.err and len(cli.err.strip().splitlines()) == 1


def test_wish_to_keep_private_fields_that_comes_too_late_is_answered(cli: Cli) -> None:
    cli.json("import", EAGER)

    assert cli("import", EAGER, "--keep-private") == 0
    assert "--keep-private comes too late: delete the run" in cli.err


@pytest.mark.parametrize("name", ["seq_len", "context", "layers", "m"])
def test_jobs_of_a_sweep_over_sizes_have_different_names(name: str) -> None:
    assert run_name("w", {"preset": "custom", name: 1}) != run_name("w", {name: 2})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ('["/usr/bin/python3", "-u", "/srv/jobs/train.py", "--lr", "1"]', "train.py"),
        ('["python", "-m", "pkg.train"]', "pkg.train"),
        ('["/opt/app/bench", "-n", "1"]', "bench"),
        ("[]", "command"),
        ("{", "command"),
    ],
)
def test_an_own_program_is_called_by_its_script_or_file(words: str, name: str) -> None:
    assert run_name("command", {"argv": words}) == name
    assert run_name("command", {"argv": words, "name": "mine"}) == "mine"


def test_a_job_without_a_name_is_called_by_its_program_and_its_settings() -> None:
    params = {"argv": '["/opt/solve"]', "settings": "NVIDIA_TF32_OVERRIDE=1"}

    assert run_name("command", params) == "solve NVIDIA_TF32_OVERRIDE=1"


def test_many_settings_of_one_side_are_one_line_and_the_steps_add_up() -> None:
    settings = {f"allocator.{n}": n for n in range(9)}
    a, b = build_view(((1.0,),)), build_view(((1.0,),), environment=settings | {"torch": "2"})

    lines = compare_lines(compare([a], [b]))

    assert "  environment.allocator (9 fields): known on one side only" in lines
    assert "  environment.torch: unknown -> 2  (unknown)" in lines
    assert not any("allocator.3" in line for line in lines)


def test_the_check_says_no_also_to_a_reader_that_went_away(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: Callable[..., None]
) -> None:
    for name, level_ms in (("base", 2.0), ("slow", 2.4)):
        rows = [f"{p},{i},{level_ms + 0.001 * (p + i % 3)}" for p in range(5) for i in range(10)]
        path = tmp_path / f"{name}.csv"
        path.write_text("process,iteration,latency_ms\n" + "\n".join(rows) + "\n")
        cli.json("import", str(path), "--name", name)
    monkeypatch.setattr("app.cli.compare._print", gone)
    monkeypatch.setattr("app.cli.compare.stop_writing", lambda code: code)

    assert cli("compare", "base", "slow", "--fail-above", "5") == 1


@pytest.fixture
def gone() -> Callable[..., None]:
    def closed(*_: object) -> None:
        raise BrokenPipeError

    return closed


@pytest.mark.parametrize(
    "words", [["show"], ["runs", "--filter"], ["compare"], ["import", EAGER, "--set"]]
)
def test_words_that_are_no_text_are_one_line_and_exit_code_2(cli: Cli, words: list[str]) -> None:
    assert cli(*words, "x=\udcff", *(["x=\udcff"] if words == ["compare"] else [])) == 2
    assert "not valid UTF-8" in cli.err


@pytest.mark.timeout(20)
def test_a_pipe_is_refused_without_waiting_for_its_writer(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert cli("import", str(tmp_path / "pipe")) == 2
    assert "is not a regular file" in cli.err


def test_one_document_comes_out_whatever_the_locale(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.json("import", EAGER, "--name", "k\u00e4se")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)

    assert cli("runs", "--json") == 0
    assert json.loads(out.buffer.getvalue())["runs"][0]["name"] == "k\u00e4se"  # type: ignore[attr-defined]


def test_kernels_that_a_summary_of_ranges_does_not_count_are_unknown_not_zero(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "nvtx_sum.csv"
    path.write_text(
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
        "Style,Range\n60.0,6000,3,2000.0,2000.0,1000,3000,816.0,PushPop,:forward\n"
    )
    run_id = cli.json("import", str(path))["run_id"]
    (phase,) = cli.json("show", run_id)["phases"]
    assert phase["host_ns"] == 6000 and "num_kernels" not in phase
    assert cli("show", run_id) == 0
    line = next(li for li in cli.out.splitlines() if li.startswith("forward"))
    assert line.split()[:5] == ["forward", "0.006", "-", "-", "-"]


def test_a_command_whose_libraries_are_not_installed_says_what_to_install(
    data_dir: DataDir,
) -> None:
    told = _refused(ModuleNotFoundError("No module named 'pandas'", name="pandas"), data_dir)

    assert told is not None and "warpboard[dashboard]" in told and "pandas" in told
    assert _refused(ModuleNotFoundError("nothing", name="analysis.nothing"), data_dir) is None
