"""What a program leaves in the folder of its pass is taken as a stranger's: it may be anything."""

import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import H100
from worker import program_metrics
from worker.hooks.warpboard_records import (
    CALL,
    CHUNK_BYTES,
    DEVICE_SHIFT,
    HAS_EVENTS,
    LEFT_OUT,
    RECORD,
)
from worker.outcomes import OutcomeCode, load_result, tail_text
from worker.own_program import HOOKS_FOLDER, OwnProgram, Wishes
from worker.process import ProcessLimits, ProcessResult, run_process
from worker.profile import records
from worker.profile.records import load_processes
from worker.profile.steps import find_steps
from worker.profilers import written_by_program
from worker.profilers.spec import PassContext

TRACE = H100 / "kineto" / "train_bf16.json.gz"


@pytest.fixture
def context(tmp_path: Path) -> PassContext:
    for name in ("work/hooks", "bundle"):
        (tmp_path / name).mkdir(parents=True)
    return PassContext(
        workload="command",
        params={},
        pass_name="trace",
        process=0,
        python="python",
        work_dir=tmp_path / "work",
        bundle_dir=tmp_path / "bundle",
        events_path=tmp_path / "work" / "events.jsonl",
        events_fd=0,
    )


def _collected(context: PassContext, name: str) -> Any:
    result = {"status": "ok", "captures": [{"path": name, "kind": "torch_trace"}]}
    return written_by_program(context, result, kind="torch_trace", suffix="json.gz")


def test_a_capture_in_the_folder_of_the_pass_is_kept(context: PassContext) -> None:
    (context.work_dir / "t.json.gz").write_bytes(TRACE.read_bytes())

    collected = _collected(context, "t.json.gz")

    assert [c.path.name for c in collected.captures] == ["trace-0.json.gz"]
    assert collected.outcome is None


@pytest.mark.parametrize("how", ["absolute", "upwards", "link", "folder that is a link", "pipe"])
def test_a_capture_that_does_not_lie_in_the_folder_of_the_pass_is_refused(
    context: PassContext, tmp_path: Path, how: str
) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "t.json.gz"
    other.write_bytes(TRACE.read_bytes())
    if how == "link":
        (context.work_dir / "t.json.gz").symlink_to(other)
    if how == "folder that is a link":
        (context.work_dir / "in").symlink_to(other.parent)
    if how == "pipe":
        os.mkfifo(context.work_dir / "t.json.gz")
    names = {"absolute": str(other), "upwards": "../other/t.json.gz"}
    names["folder that is a link"] = "in/t.json.gz"

    collected = _collected(context, names.get(how, "t.json.gz"))

    assert collected.captures == ()
    assert collected.outcome.code is OutcomeCode.TOOL_CRASHED
    assert "no file in the folder of the pass" in collected.outcome.message
    assert list(context.bundle_dir.iterdir()) == []


def _say(folder: Path, *lines: Any) -> None:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "process-1.jsonl").write_text("\n".join(texts))


def test_records_that_no_hook_writes_are_passed_over(tmp_path: Path) -> None:
    _say(
        tmp_path,
        *("7", "[]", "null", '"name"', "[" * 100_000, {"name": []}, {"name": {}}, {"name": None}),
        *({"name": 1, "type": 5, "parameters": "many"}, {"capture": 5}, {"capture": "t.json"}),
        *({"capture": "../../secret", "kind": "torch_trace"}, {"device": "cpu"}, {"rank": "0"}),
        *({"environment": ["x"]}, {"memory": {"peak_allocated_bytes": {"a": 1}}}, {"pid": 4}),
        *(
            {"stopped": "yes"},
            {"refused": {"a": 1}},
            {"capture": "good.json", "kind": "torch_trace"},
        ),
    )

    (process,) = load_processes(tmp_path)

    assert process.facts == {"memory": {}, "pid": 4}
    assert process.names == {}
    assert process.captures == [{"path": "good.json", "kind": "torch_trace"}]
    assert process.odd_captures == ["5", "t.json", "../../secret"]


@pytest.mark.parametrize("end", [".jsonl", ".bin"])
@pytest.mark.parametrize("kind", ["pipe", "link to a device", "link to a file", "folder"])
def test_what_stands_in_the_place_of_records_is_not_read(
    tmp_path: Path, end: str, kind: str
) -> None:
    _say(tmp_path, {"pid": 1})
    path = tmp_path / f"process-1{end}"
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "link to a device" else "/etc/passwd")

    (process,) = load_processes(tmp_path)

    assert process.records == []


def test_many_processes_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_OF_ALL", 50)
    monkeypatch.setattr(records, "MAX_FACTS_OF_ALL_BYTES", 500)
    many = (CALL, LEFT_OUT, 0, 9 << DEVICE_SHIFT, 1, 5, 10, 0.0, 0.0)
    for number in range(8):
        stem = tmp_path / f"process-{number}"
        stem.with_suffix(".bin").write_bytes(
            b"".join([RECORD.pack(*many)] * 4).ljust(CHUNK_BYTES, b"\0")
        )
        lines = [json.dumps({"name": n, "type": "x" * 10}) for n in range(5)]
        stem.with_suffix(".jsonl").write_text("\n".join(lines))

    found = load_processes(tmp_path)

    assert sum(len(p.records) for p in found) == 50
    assert 8 < sum(len(p.names) for p in found) < 20


def test_times_that_are_no_numbers_make_no_step(tmp_path: Path) -> None:
    _say(tmp_path, {"name": 0, "type": "Model", "parameters": 3})
    odd = (math.inf, -math.inf, math.nan)
    flags = HAS_EVENTS
    values = [(1, 0, 0, flags, 1, n, n + 5, odd[n % 3], odd[n // 3 % 3]) for n in range(27)]
    (tmp_path / "process-1.bin").write_bytes(
        b"".join(RECORD.pack(*v) for v in values).ljust(CHUNK_BYTES, b"\0")
    )

    (process,) = load_processes(tmp_path)

    steps = find_steps(process)
    assert [type(ns) for kind in steps for ns in kind.alone_ns] == [int] * 27


def test_a_capture_beside_none_of_the_records_is_a_warning_of_the_run(context: PassContext) -> None:
    _say(context.work_dir / HOOKS_FOLDER, {"capture": "/etc/passwd", "kind": "torch_trace"})

    result = OwnProgram(words=["prog"]).result("trace", context.work_dir, _ended(context), {})

    assert result["captures"] == []
    assert any("/etc/passwd" in w["message"] for w in result["warnings"])


def _ended(context: PassContext) -> ProcessResult:
    places = (context.work_dir / "stdout.txt", context.work_dir / "stderr.txt")
    return ProcessResult(returncode=0, stdout_path=places[0], stderr_path=places[1], duration_s=1.0)


def test_a_pipe_in_the_place_of_what_was_printed_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stdout.txt")

    assert load_result(tmp_path / "stdout.txt") is None
    assert tail_text(tmp_path / "stdout.txt") == ""
    assert program_metrics.values_of(re.compile("(a)"), [tmp_path / "stdout.txt"]) == []


def test_a_pipe_in_the_place_of_its_events_does_not_stop_the_clock_of_a_job(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    os.mkfifo(events)
    begin_s = time.monotonic()

    result = run_process(
        ["sleep", "60"],
        stdout_path=tmp_path / "out",
        stderr_path=tmp_path / "err",
        events_path=events,
        limits=ProcessLimits(soft_s=0.3, grace_s=1.0),
        on_event=lambda event: None,
    )

    assert result.timed_out
    assert time.monotonic() - begin_s < 20


def test_an_event_without_an_end_is_passed_over(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    seen: list[Any] = []
    events.write_bytes(b"x" * (3 << 20) + b'\n{"event": "after"}\n')

    run_process(
        ["sleep", "1"],
        stdout_path=tmp_path / "out",
        stderr_path=tmp_path / "err",
        events_path=events,
        on_event=seen.append,
    )

    assert seen == [{"event": "after"}]


def test_a_pattern_that_takes_for_ever_is_given_up(
    context: PassContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_metrics, "METRICS_LIMIT_S", 2.0)
    ended = _ended(context)
    ended.stdout_path.write_text("a" * 60 + "\n")
    own = OwnProgram(words=["prog"], wishes=Wishes(metrics=("(?:a+)+(b)",)))

    result = own.result("clean", context.work_dir, ended, {})

    assert any("metrics: looking for them took more" in w["message"] for w in result["warnings"])


def test_numbers_that_a_program_prints_are_found_in_the_process_that_looks(
    context: PassContext,
) -> None:
    ended = _ended(context)
    ended.stdout_path.write_text("loss: 1e999\nx" * 3 + "loss: 2.5\n" + "y" * 30_000 + " loss: 3.5")
    own = OwnProgram(words=["prog"], wishes=Wishes(metrics=(r"loss: ([\d.e]+)", "none: (.)")))

    result = own.result("clean", context.work_dir, ended, {})

    assert result["metrics"][0] == {"name": "loss", "value": 3.0, "unit": ""}
    assert [w["code"] for w in result["warnings"]][-1] == "metric_not_printed"
