"""The command line as scripts see it: one document, exit codes, no traceback."""

import errno
import io
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import COMMANDS, main
from core.config import DataDir
from tests.app.conftest import Cli
from tests.conftest import H100

EAGER = str(H100 / "nsys" / "decode_eager.sqlite")
AUTOTUNE = str(H100 / "nsys" / "decode_max_autotune.sqlite")


def test_every_command_of_the_help_exists(cli: Cli) -> None:
    codes = {name: cli(name, "--help") for name in COMMANDS}

    assert set(codes.values()) == {0}


def test_runs_list_show_tag_pin_delete(cli: Cli) -> None:
    run_id = cli.json("import", EAGER, "--name", "mine", "--set", "workload=decode")["run_id"]

    assert cli.json("tag", "mine", "paper", "old")["tags"] == ["old", "paper"]
    assert cli.json("tag", "mine", "old", "--remove")["tags"] == ["paper"]
    assert cli.json("pin", run_id)["is_baseline"] is True
    rows = cli.json("runs", "--filter", "tag:paper baseline:true workload:decode")["runs"]
    assert [r["id"] for r in rows] == [run_id]
    assert cli.json("delete", run_id)["deleted"] == [run_id]
    assert cli.json("runs")["total"] == 0


def test_delete_removes_the_files(cli: Cli, data_dir: DataDir) -> None:
    run_id = cli.json("import", EAGER)["run_id"]
    assert (data_dir.captures / run_id).exists()

    cli("delete", run_id)

    assert not (data_dir.captures / run_id).exists()
    assert not (data_dir.spans / run_id).exists()


def test_compare_prints_one_document_whose_waterfall_adds_up(cli: Cli) -> None:
    a = cli.json("import", EAGER)["run_id"]
    b = cli.json("import", AUTOTUNE)["run_id"]

    assert cli("compare", a, b, "--metric", "kernel_time", "--format", "json") == 0

    found = json.loads(cli.out)
    assert {"comparable", "differs", "verdict", "reason", "ratio", "ci95"} <= set(found)
    assert found["ratio"] == pytest.approx(1_616_232 / 2_184_310)
    steps = sum(bar["delta_ns"] for bar in found["waterfall"])
    assert steps == found["total_b_ns"] - found["total_a_ns"]


def latency_csv(path: Path, values_ms: list[float]) -> str:
    path.write_text("latency_ms\n" + "".join(f"{v}\n" for v in values_ms))
    return str(path)


def test_gate_passes_what_is_not_proved_worse(cli: Cli, tmp_path: Path) -> None:
    a = cli.json("import", latency_csv(tmp_path / "a.csv", [1.0, 1.1, 0.9] * 4))["run_id"]
    b = cli.json("import", latency_csv(tmp_path / "b.csv", [1.0, 1.1, 0.95] * 4))["run_id"]

    assert cli("compare", a, b, "--fail-above", "5") == 0
    assert cli("compare", a, b, "--fail-above", "5", "--on-inconclusive", "fail") == 4
    assert "latency" in cli.out


def processes_csv(path: Path, level_ms: float) -> str:
    rows = [f"{p},{i},{level_ms + 0.001 * (p + i % 3)}" for p in range(5) for i in range(10)]
    path.write_text("process,iteration,latency_ms\n" + "\n".join(rows) + "\n")
    return str(path)


def test_several_builds_are_held_against_the_first_and_one_that_is_slower_fails_the_check(
    cli: Cli, tmp_path: Path
) -> None:
    for variant, level_ms in (("base", 2.0), ("fast", 1.6), ("slow", 2.4)):
        path = processes_csv(tmp_path / f"{variant}.csv", level_ms)
        settings = ("--set", "workload=mine", "--set", f"variant={variant}")
        cli.json("import", path, "--name", variant, *settings)

    assert cli("compare", "base", "fast", "slow", "--fail-above", "5") == 1
    assert "variant base -> fast" in cli.out and "faster" in cli.out
    assert "latency of slow: slower by 19.97 %" in cli.err

    assert cli("compare", "base", "variant:fast,slow", "--format", "json") == 0
    told = {p["b"]["label"]: p["verdict"] for p in json.loads(cli.out)["pairs"]}
    assert told == {"fast": "faster", "slow": "slower"}


def test_classify_answers_in_input_order(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32", "no such thing"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(names) + "\n"))

    found = cli.json("classify")

    assert [f["name"] for f in found] == names
    assert [f["category"] for f in found] == ["gemm", "collective", "unknown"]


def test_reclassify_applies_the_users_rules_to_stored_runs(cli: Cli, data_dir: DataDir) -> None:
    run_id = cli.json("import", EAGER)["run_id"]
    before = cli.json("show", run_id)["summary"]["gemm_frac"]
    rule = '[[rule]]\ncontains = "nvjet"\ncategory = "other"\n'
    data_dir.rules_path.write_text(rule)

    result = cli.json("reclassify")

    shown = cli.json("show", run_id)
    assert result["num_changed"] > 0
    assert shown["summary"]["gemm_frac"] < before
    # a list says what a step does, where a run has steps
    listed = cli.json("runs")["runs"][0]["gemm_frac"]
    assert listed == pytest.approx(shown["steps"]["gemm_frac"], rel=1e-12)


def test_studies_are_listed_and_print_markdown(cli: Cli) -> None:
    names = [s["name"] for s in cli.json("study", "--list")]

    cli.json("import", EAGER)
    assert cli("study", names[0]) == 0
    assert cli.out.strip()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "nothing"], "no run has this id or name"),
        (["runs", "--filter", "latency<x"], "character 1"),
        (["runs", "--sort", "colour"], "sort"),
        (["import", "gone.sqlite"], "gone.sqlite"),
        (["import", EAGER, "--set", "batch"], "NAME=VALUE"),
        (["import", EAGER, "--set", "memory_cap_gib=lots"], "memory_cap_gib"),
        (["import", EAGER, "--set", "gpus=1e400"], "gpus"),
        (["import", EAGER, "--set", "workload=5"], "workload"),
        (["tag", "nothing", "x"], "no run"),
        (["compare", "a", "b"], "no run"),
        (["study", "no_such_study"], "no_such_study"),
        (["submit", "no_such_workload"], "no_such_workload"),
        (["submit", "decode", "--set", "layer=2"], "layers"),
        (["submit", "decode", "--set", "layers=two"], "layers=two"),
        (["submit", "decode", "--set", "layers=-1"], "layers=-1"),
        (["submit", "decode", "--set", "compile=fast"], "max-autotune"),
        (["submit", "decode", "--repeats", "0"], "repeats"),
        (["submit", "decode", "--profilers", "gdb"], "nsys"),
        (["submit", "decode", "--gpu", "RTX 9999"], "RTX 9999"),
        (["submit", "decode", "--set", "layers=1,,2"], "layers"),
        (["no-such-command"], "no-such-command"),
        (["runs", "--limit", "many"], "--limit"),
        (["runs", "--limit", "-1"], "whole number of 0 to"),
        (["runs", "--limit", "9" * 20], "whole number of 0 to"),
        (["submit", "decode", "--gpu", ""], "'' matches no model"),
        (["submit", "decode", "--gpu", "h100@node1:0"], "no worker registered 'h100@node1:0'"),
        (["token", " "], "LABEL"),
        (["up", "--port", "0"], "whole number of 1 to 65535"),
        (["import", "."], ": the folder has no manifest.json"),
        (["up", "--port", "99999999"], "port"),
        (["import", "x" * 5000], "File name too long"),
        (["import", f"{'d' * 300}/x.sqlite", EAGER], "File name too long"),
        (["--data", "d" * 300, "runs"], "File name too long"),
        (["--data", "~nobody-has-this-name/data", "runs"], "nobody has this home folder"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(cli: Cli, words: list[str], said: str) -> None:
    assert cli(*words) == 2
    assert said in cli.err
    assert len(cli.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("lfs.sqlite", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs"),
        ("empty.sqlite", b"", "empty"),
        ("text.sqlite", b"hello", "type is not recognised"),
        ("cut.sqlite", Path(EAGER).read_bytes()[:50_000], "cut.sqlite"),
        ("cut.json", b'{"traceEvents": [{"ph": "X", "ts": 1', "cut.json"),
        ("evil.pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.", "evil.pickle"),
    ],
)
def test_bad_file_is_refused_and_leaves_the_database_as_it_was(
    cli: Cli, data_dir: DataDir, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    cli.json("import", EAGER)
    before = cli.json("runs"), sorted(p.name for p in data_dir.captures.iterdir())
    path = tmp_path / name
    path.write_bytes(content)

    assert cli("import", str(path)) == 2
    assert said in cli.err
    assert len(cli.err.strip().splitlines()) == 1
    assert (cli.json("runs"), sorted(p.name for p in data_dir.captures.iterdir())) == before
    assert list(data_dir.uploads.iterdir()) == []


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "deep"])
def test_rules_that_are_no_file_of_rules_are_one_line(
    cli: Cli, data_dir: DataDir, kind: str
) -> None:
    cli.json("import", EAGER)
    if kind == "pipe":
        os.mkfifo(data_dir.rules_path)
    elif kind == "folder":
        data_dir.rules_path.mkdir()
    elif kind == "device":
        data_dir.rules_path.symlink_to("/dev/zero")
    else:
        data_dir.rules_path.write_text("rule = " + "[" * 20_000)

    assert cli("reclassify") == 2
    assert "rules.toml" in cli.err
    assert len(cli.err.strip().splitlines()) == 1


def test_failure_with_json_is_still_one_document(cli: Cli) -> None:
    assert cli("show", "nothing", "--json") == 2
    assert "no run" in json.loads(cli.out)["error"]


@pytest.mark.parametrize(
    "words", [["project", "--json"], ["compare", "x", "--format", "json"], ["runs", "--limit=x"]]
)
def test_wrong_words_with_json_are_one_document(cli: Cli, words: list[str]) -> None:
    assert cli(*words, *(["--json"] if "--limit=x" in words else [])) == 2
    assert json.loads(cli.out)["exit_code"] == 2


def test_full_disk_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("app.imports.import_paths", full)

    assert cli("import", EAGER, "--json") == 2
    assert json.loads(cli.out)["error"] == "writing: No space left on device; free some space"


def test_data_folder_that_is_a_file_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    assert cli("--data", str(tmp_path / "file"), "import", EAGER) == 2
    assert len(cli.err.splitlines()) == 1


def test_database_of_a_newer_version_is_refused_and_kept(cli: Cli, data_dir: DataDir) -> None:
    cli("runs")
    with sqlite3.connect(data_dir.db_path) as newer:
        newer.execute("CREATE TABLE of_m099 (x)")
        newer.execute("INSERT INTO _sqlite_migrations VALUES (99, 'warpboard', 'm099_x', 'now')")

    assert cli("runs") == 2
    assert "made by a newer Warpboard (it has m099_x)" in cli.err


def test_bug_is_one_line_with_the_place_of_its_log(
    cli: Cli, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.runs.list_rows", lambda *_a, **_k: 1 / 0)

    assert cli("runs") == 3
    assert "errors.log" in cli.err
    assert "ZeroDivisionError" in (data_dir.logs / "errors.log").read_text()


def test_submit_without_a_dashboard_queues_and_says_how_to_start(cli: Cli) -> None:
    found = cli.json("submit", "decode", "--set", "compile=none,default", "--gpu", "cpu")

    assert "warpboard up" in cli.err
    assert [r["status"] for r in found["runs"]] == ["queued", "queued"]
    assert [r["params"]["compile"] for r in found["runs"]] == ["none", "default"]
    assert {r["run_id"] for r in found["runs"]} == {r["id"] for r in found["runs"]}
    cancelled = cli.json("cancel", found["runs"][0]["run_id"])
    assert cancelled["status"] == "cancelled"
    assert cli.json("retry", found["runs"][0]["run_id"])["status"] == "queued"


def test_doctor_names_each_check_with_its_fix(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPBOARD_BROKER", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("WARPBOARD_PYTHON", "/bin/false")  # PyTorch takes seconds to start

    assert cli("doctor", "--json") == 1

    checks = {c["name"]: c for c in json.loads(cli.out)["checks"]}
    assert not checks["broker"]["is_ok"]
    assert "Redis" in checks["broker"]["fix"]
    assert checks["database"]["is_ok"]


def test_data_folder_may_have_a_commands_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--data", "demo", "runs"]) == 0


@pytest.mark.parametrize("command", ["run", "worker"])
def test_words_of_run_and_worker_reach_their_program_untouched(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("app.cli.pass_on.os.execve", lambda _, words, env: seen.append(words))
    monkeypatch.setenv("WARPBOARD_PYTHON", "/usr/bin/python3")
    cli(command, "--out", "x", "decode", "--set", "a=1")
    assert seen[0][4:] == ["--out", "x", "decode", "--set", "a=1"]


def test_help_of_run_installs_no_torch(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.environments.torch_python", lambda: pytest.fail("torch was asked for"))
    assert cli("run", "--help") == 0


def test_study_without_a_row_names_the_job_that_fills_it(cli: Cli) -> None:
    assert cli("study", "moe-routing") == 0
    assert "warpboard submit moe_routing" in cli.err
