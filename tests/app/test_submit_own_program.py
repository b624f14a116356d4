"""Own programs on the Submit page and by `submit`: for hosts whose operator allows them."""

import json
import shlex
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.imports import run_name
from app.job_text import profile_command, submit_command
from app.submit import Target, target_of_own_program
from core.config import DataDir
from core.console import parse_sweep
from core.errors import UserError
from core.spec import JobSpec
from db.connection import opened
from db.runs import insert_run, list_rows
from db.workers import register_worker
from tests.app.conftest import Cli
from tests.app.test_pages import open_page, texts
from worker.profile.command import make_parser
from workloads.registry import parse_params

H200 = "NVIDIA H200"


def host(data_dir: DataDir, allowed: list[str]) -> None:
    """Register a worker whose host allows these programs."""
    with opened(data_dir.db_path) as db:
        info = {"host_label": "node1", "permissions": {"commands": allowed}}
        gpus = [{"model": H200, "uuid": "GPU-0", "ordinal": 0}]
        register_worker(db, "w1", version="0.1.0", queues=[], gpus=gpus, info=info)


def stored(data_dir: DataDir) -> list[dict[str, Any]]:
    with opened(data_dir.db_path) as db:
        return list_rows(db)


def page(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    return open_page(monkeypatch, str(data_dir.root), "submit", workload="command")


def test_command_becomes_a_job_of_words_with_its_metric_and_steps(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(data_dir, ["/usr/bin/python3 /srv/jobs/"])
    at = page(data_dir, monkeypatch)
    assert "/usr/bin/python3 /srv/jobs/" in texts(at).replace("\\", "")

    at.text_input(key="own_argv").set_value("/usr/bin/python3 /srv/jobs/a.py 'two words; rm *'")
    at.text_input(key="own_metrics").set_value("tok/s: ([0-9.]+)").run()
    at.multiselect(key="field_command_iterations").set_value(["8"]).run()
    next(b for b in at.button if b.label == "Submit 1 job").click().run()

    (row,) = stored(data_dir)
    assert json.loads(row["params"]["argv"]) == [
        "/usr/bin/python3", "/srv/jobs/a.py", "two words; rm *",
    ]  # fmt: skip
    assert json.loads(row["params"]["metrics"]) == ["tok/s: ([0-9.]+)"]
    assert (row["params"]["iterations"], row["gpu_model"]) == (8, H200)


def test_host_that_allows_nothing_is_named_with_what_its_operator_sets(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(data_dir, [])

    at = page(data_dir, monkeypatch)

    assert "WARPBOARD_ALLOW_COMMANDS" in texts(at).replace("\\", "")
    assert not [b for b in at.button if b.label.startswith("Submit")]


def test_unclosed_quote_is_said_and_nothing_can_be_submitted(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(data_dir, ["/opt/app/"])
    at = page(data_dir, monkeypatch)

    at.text_input(key="own_argv").set_value("/opt/app/run 'open").run()

    assert "No closing quotation" in texts(at)
    assert not [b for b in at.button if b.label.startswith("Submit")]


def test_submit_refuses_an_own_program_where_its_host_allows_none(
    cli: Cli, data_dir: DataDir
) -> None:
    host(data_dir, [])

    assert cli("submit", "command", "--gpu", H200, "--set", 'argv=["/opt/app/run"]') == 2

    assert "WARPBOARD_ALLOW_COMMANDS" in cli.err
    assert stored(data_dir) == []


def test_submit_says_so_where_no_worker_has_told_what_its_host_allows(
    cli: Cli, data_dir: DataDir
) -> None:
    assert cli("submit", "command", "--gpu", "cpu", "--set", 'argv=["/opt/app/run"]') == 0

    assert "no worker on cpu has said which own programs its host allows" in cli.err
    assert len(stored(data_dir)) == 1


def test_reproduce_of_an_own_program_is_the_profile_command_that_reads_back_alike() -> None:
    params = {
        "argv": json.dumps(["python3", "a b.py", "--lr", "1"]), "iterations": 8, "warmup": 2,
        "latency": "step alone", "metrics": json.dumps(["tok/s: ([0-9.]+)"]),
    }  # fmt: skip

    words = shlex.split(profile_command(params, ("nsys", "memory"), 5))

    cut = words.index("--")
    read = make_parser().parse_args(words[2:cut])
    assert words[cut + 1 :] == ["python3", "a b.py", "--lr", "1"]
    assert (read.passes, read.repeats, read.steps, read.skip) == ("clean,nsys,memory", 5, 8, 2)
    assert (read.latency, read.metric) == ("alone", ["tok/s: ([0-9.]+)"])


def test_command_of_an_own_program_sets_the_variables_that_it_is_to_have() -> None:
    params = {"argv": json.dumps(["python3", "train.py"])}

    more = {"CUDA_MODULE_LOADING": "EAGER"}

    command = profile_command(params | {"settings": "NVIDIA_TF32_OVERRIDE=1"}, (), 3, more)

    assert shlex.split(command) == [
        "CUDA_MODULE_LOADING=EAGER", "NVIDIA_TF32_OVERRIDE=1", "./warpboard", "profile",
        "--repeats", "3", "--", "python3", "train.py",
    ]  # fmt: skip


def test_submit_command_of_settings_with_a_comma_is_one_job_again() -> None:
    settings = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128"
    params = {"argv": '["/opt/app/run"]', "settings": settings}

    words = shlex.split(submit_command({"workload": "command", "params": params}))

    read = {k: v for k, (v,) in parse_sweep(words[4::2]).items()}
    assert parse_params("command", read)["settings"] == settings


def test_settings_of_the_page_are_those_of_the_job(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(data_dir, ["/opt/app/"])
    at = page(data_dir, monkeypatch)
    at.text_input(key="own_argv").set_value("/opt/app/run").run()

    at.text_input(key="own_settings").set_value("LD_PRELOAD=/tmp/x.so").run()
    assert "cannot be set" in texts(at)
    assert not [b for b in at.button if b.label.startswith("Submit") and not b.disabled]

    at.text_input(key="own_settings").set_value("NVIDIA_TF32_OVERRIDE=1").run()
    next(b for b in at.button if b.label == "Submit 1 job").click().run()
    (row,) = stored(data_dir)
    assert row["params"]["settings"] == "NVIDIA_TF32_OVERRIDE=1"
    assert row["name"] == "run NVIDIA_TF32_OVERRIDE=1"


def test_submit_refuses_a_setting_that_is_not_on_the_list(cli: Cli, data_dir: DataDir) -> None:
    words = ("--set", 'argv=["/opt/app/run"]', "--set", "settings=LD_PRELOAD=/tmp/x.so")

    assert cli("submit", "command", "--gpu", "cpu", *words) == 2

    assert "LD_PRELOAD" in cli.err
    assert "CUDA_MODULE_LOADING" in cli.err
    assert stored(data_dir) == []


def two_hosts(data_dir: DataDir, first: list[str], second: list[str]) -> None:
    with opened(data_dir.db_path) as db:
        for name, allowed in (("node1", first), ("node2", second)):
            info = {"host_label": name, "permissions": {"commands": allowed}}
            gpus = [{"model": H200, "uuid": f"GPU-{name}", "ordinal": 0}]
            register_worker(db, name, version="0.1.0", queues=[], gpus=gpus, info=info)


def test_a_program_goes_to_the_host_that_allows_it(data_dir: DataDir) -> None:
    two_hosts(data_dir, ["/opt/other/"], ["/opt/app/"])

    with opened(data_dir.db_path) as db:
        assert target_of_own_program(db, H200, ["/opt/app/run"]).device == "GPU-node2"
        with pytest.raises(UserError, match="WARPBOARD_ALLOW_COMMANDS"):
            target_of_own_program(db, H200, ["/opt/third/run"])
        with pytest.raises(UserError, match="whole path"):
            target_of_own_program(db, H200, ["./run"])


def test_a_program_that_all_hosts_allow_goes_to_any(data_dir: DataDir) -> None:
    two_hosts(data_dir, ["/opt/app/"], ["/opt/app/run"])

    with opened(data_dir.db_path) as db:
        assert target_of_own_program(db, H200, ["/opt/app/run"]) == Target(model=H200)


ODD = [
    {"argv": "5"},
    {"argv": '["a", 5]'},
    {"argv": "["},
    {"argv": "[" * 50_000},
    {"metrics": "5"},
    {"metrics": "{"},
    {"cwd": "\x1b[2J"},
    {"no such name": "x"},
]


@pytest.mark.parametrize("change", ODD, ids=lambda change: str(change)[:20])
def test_a_job_of_a_bundle_may_hold_anything_and_its_pages_open(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    params = {"argv": '["python", "a.py"]', "settings": "none", "metrics": "[]"} | change
    with opened(data_dir.db_path) as db:
        run_id = insert_run(db, spec=JobSpec(workload="command", params=params), name="odd")
        with db.atomic():
            db.execute("UPDATE runs SET status = 'done' WHERE id = ?", [run_id])
    root = str(data_dir.root)

    run = open_page(monkeypatch, root, "run", run_id=run_id, tab="Reproduce")
    form = open_page(monkeypatch, root, "submit", **{"from": run_id})

    assert not [*run.exception, *form.exception]
    assert "./warpboard profile" in texts(run)
    assert run_name("command", params)


def test_words_of_a_program_that_are_nested_for_ever_are_refused() -> None:
    with pytest.raises(UserError, match="argv"):
        parse_params("command", {"argv": "[" * 50_000})
