"""A program that was not written for Warpboard, run unchanged in every pass.

What it runs in (environment, folder, hooks), which of its steps the profiled passes capture, and
the result line that its records stand for. Standard library only.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captures.scrub.log import LogCleaner
from core.config import ROOT
from core.metric_patterns import metric_pattern
from core.program_settings import parse_settings
from core.spec import PROGRAM_TIME, JobSpec
from worker.environment import job_environment
from worker.hooks.warpboard_records import ENTERED
from worker.left_behind import SAID_AFTER_S, LeftBehind
from worker.process import ProcessResult
from worker.profile.latency import ALONE, TO_NEXT, step_latency
from worker.profile.records import Process, load_processes, main_process
from worker.profile.steps import Steps, find_steps, first_of_main
from worker.program_metrics import printed_metrics
from workloads.allowed import allowed_folder, allowed_program
from workloads.params import load_params
from workloads.registry import find_workload

HOOKS = Path(__file__).resolve().parent / "hooks"
HOOKS_FOLDER = "hooks"
"""Where in a pass's scratch folder the hooks write."""
DEFAULT_STEPS = {"nsys": 8, "trace": 4, "memory": 2, "ncu": 1}
UNKNOWN_SKIP = 3
"""Steps before the captured ones where no clean pass has shown when they settle."""
MAX_ODD = 5
_SECRET = ("token", "password", "passwd", "secret", "api-key", "api_key", "apikey")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user wants measured."""

    num_steps: int = 0
    "Steps of a pass, after which the program is ended; 0 is all, to the program's own end."
    num_skipped: int = 0
    "Steps before them; 0: until their times settle."
    latency: str = TO_NEXT
    metrics: tuple[str, ...] = ()
    "Regular expressions with one group, a number that the program prints."


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the clean pass saw of the program, for the passes after it."""

    num_steps: int = 0
    num_unsettled: int = 0
    "Steps of any kind before those that the other passes capture."
    is_training: bool = False
    root: str | None = None


@dataclass(slots=True)
class OwnProgram:
    """One program and what was learnt of it so far."""

    words: Sequence[str]
    cwd: Path | None = None
    executable: str | None = None
    "Where the program is; None: as `words` say."
    wishes: Wishes = field(default_factory=Wishes)
    source: Mapping[str, str] = field(default_factory=dict)
    "What is known of the code that runs: its commit."
    seen: Seen | None = None
    is_endless: bool = False
    "A process of the clean pass reached the time limit."
    goes_on_after_its_end: bool = False
    "What it left running worked on: a profiler has to wait for that too."
    exit_code: int | None = None
    "Of the first process."
    stdin: Path | None = None
    "What each process reads; None: nothing."
    variables: Mapping[str, str] = field(default_factory=dict)
    "Settings of its environment that the job asks for."
    left_behind: LeftBehind = field(default_factory=LeftBehind)
    "What the process that ran last left running when it ended."

    @property
    def argv(self) -> list[str]:
        return [self.executable or self.words[0], *self.words[1:]]

    @property
    def has_steps(self) -> bool:
        """Whether the passes after the clean one may wait for a step to begin."""
        return self.seen is None or self.seen.num_steps > 0

    @property
    def ends_early(self) -> bool:
        """Whether a pass ends the program once it has its steps."""
        return self.wishes.num_steps > 0 or self.is_endless

    def why_left_out(self, pass_name: str) -> dict[str, str] | None:
        """Return the warning of a pass that would find nothing; None where it is worth running."""
        if self.has_steps or pass_name not in ("memory", "trace"):
            return None
        message = (
            f"{pass_name}: not run, since it records around steps of PyTorch or marked ones, and "
            "the clean pass saw none"
        )
        return {"code": f"{pass_name}_left_out", "message": message}

    def environment(self, pass_name: str, work_dir: Path) -> dict[str, str]:
        """Return the user's environment with the job's settings, and the hooks in PYTHONPATH."""
        folder = work_dir / HOOKS_FOLDER
        folder.mkdir(exist_ok=True)
        env = {**job_environment(), **self.variables}
        theirs = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
        theirs = [p for p in theirs if os.path.realpath(p) != str(ROOT)]
        env["PYTHONPATH"] = os.pathsep.join([str(HOOKS), *theirs])
        env["WARPBOARD_PROFILE"] = json.dumps(self.settings(pass_name, folder))
        env["NSYS_NVTX_PROFILER_REGISTER_ONLY"] = "0"
        return env

    def settings(self, pass_name: str, folder: Path) -> dict[str, Any]:
        """Return the hooks' settings: which steps to capture, and what is known of them already."""
        settings: dict[str, Any] = {"pass": pass_name, "dir": str(folder)}
        if pass_name == "clean":
            if self.wishes.latency == ALONE:
                settings["alone"] = True
            if self.wishes.num_steps:
                skip = self.wishes.num_skipped or UNKNOWN_SKIP
                settings |= {"skip": skip, "steps": self.wishes.num_steps, "stop": True}
            return settings
        first, count = self.captured(pass_name)
        settings |= {"skip": first, "steps": count, "stop": self.ends_early}
        if self.seen is not None and self.seen.num_steps:
            settings |= {"training": self.seen.is_training, "root": self.seen.root}
        return settings

    def captured(self, pass_name: str) -> tuple[int, int]:
        """Return the first step of a profiled pass, and how many it captures."""
        count = DEFAULT_STEPS[pass_name]
        if pass_name in ("nsys", "trace") and self.wishes.num_steps:
            count = self.wishes.num_steps
        first = self.wishes.num_skipped
        if self.seen is None or not self.seen.num_steps:
            return first or UNKNOWN_SKIP, count
        first = first or self.seen.num_unsettled
        last = self.seen.num_steps - 1  # its end is seen where the next one begins
        first = max(0, min(first, last - count))
        return first, max(1, min(count, last - first))

    def result(
        self, pass_name: str, work_dir: Path, process: ProcessResult, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what the program's records say, as the result line of a workload."""
        processes = load_processes(work_dir / HOOKS_FOLDER)
        main = main_process(processes)
        kinds = find_steps(main) if main is not None else []
        if pass_name == "clean" and self.exit_code is None:
            self.exit_code = process.returncode
        stopped = any(p.facts.get("stopped") for p in processes)
        is_good = process.returncode == 0 or bool(kinds) or stopped
        result: dict[str, Any] = {
            "schema_version": 1,
            "workload": "command",
            "params": dict(params),
            "pass": pass_name,
            "status": "ok" if is_good else "failed",
            "samples_ns": [],
            "warnings": [],
            "captures": [
                {"path": f"{HOOKS_FOLDER}/{c['path']}", "kind": c["kind"]}
                for c in (main.captures if main is not None else ())
            ],
        }
        if main is not None:
            for name in ("environment", "device", "memory"):
                if main.facts.get(name):
                    result[name] = main.facts[name]
        for name in (main.odd_captures if main is not None else ())[:MAX_ODD]:
            message = f"{pass_name}: {name!r} is no file beside the hooks' records; it is not kept"
            result["warnings"].append({"code": "capture_refused", "message": message})
        result["warnings"] += self.left_behind.warnings(pass_name)
        if pass_name == "clean":
            if main is not None and kinds:
                self._add_latency(result, kinds, main)
                num_ranks = sum(p.facts.get("rank") is not None for p in processes)
                if num_ranks > 1:
                    result["environment"]["ranks"] = num_ranks
            if not kinds and is_good and process.killed_by != "cancel":
                entered = (work_dir / HOOKS_FOLDER / ENTERED).exists()
                why = (_NO_STEPS if entered else _NO_PYTHON) + _INSTEAD
                result["warnings"].append({"code": "no_steps_seen", "message": why})
            self._add_metrics(result, process, is_whole=not stopped)
            self._learn(kinds, main)
            if process.timed_out and result["samples_ns"]:
                self.is_endless, self.exit_code = True, 0
                result["warnings"].append(_ended_at_limit(process.duration_s))
            self.goes_on_after_its_end = self.left_behind.worked_s > SAID_AFTER_S
        elif (
            pass_name in ("memory", "trace")
            and not result["captures"]
            and is_good
            and process.killed_by != "cancel"
        ):
            result["warnings"].append(_why_no_capture(pass_name, main))
        return result if is_good else result | {"error": ""}

    def _learn(self, kinds: Sequence[Steps], main: Process | None) -> None:
        total = sum(len(k) for k in kinds if k.kind == kinds[0].kind)
        self.seen = Seen(
            num_steps=total,
            num_unsettled=first_of_main(kinds, max(DEFAULT_STEPS.values()) + 1) if kinds else 0,
            is_training=bool(kinds) and kinds[0].kind == "training",
            root=kinds[0].root if kinds else None,
        )

    def _add_latency(self, result: dict[str, Any], kinds: Sequence[Steps], main: Process) -> None:
        found, warnings = step_latency(
            kinds,
            main,
            wanted=self.wishes.latency,
            num_skipped=self.wishes.num_skipped,
            num_steps=self.wishes.num_steps,
        )
        result |= found
        result["warnings"] += warnings
        steps = found["steps"]
        environment = result.setdefault("environment", {})
        environment["step"] = f"{steps['title']}; {steps['latency']}, by {steps['clock']}"

    def _add_metrics(
        self, result: dict[str, Any], process: ProcessResult, *, is_whole: bool
    ) -> None:
        """Add what the program printed, and how long all of it took where it ran to its end."""
        files = (process.stdout_path, process.stderr_path)
        metrics, warnings = printed_metrics(self.wishes.metrics, files)
        result["warnings"] += warnings
        if is_whole and process.returncode == 0:
            took_s = round(process.duration_s, 4)
            metrics.append({"name": PROGRAM_TIME, "value": took_s, "unit": "s"})
        if metrics:
            result["metrics"] = metrics


def allowed_own(spec: JobSpec, folder: Path) -> tuple[OwnProgram, float]:
    """Return the program of a job and the longest time of a process; UserError if not allowed."""
    params: Any = load_params(find_workload(spec.workload), spec.params)
    executable = allowed_program(params.words)
    place = allowed_folder(params.cwd, executable)
    for pattern in params.patterns:
        metric_pattern(pattern)
    wishes = Wishes(
        num_steps=params.iterations,
        num_skipped=params.warmup,
        latency=params.latency,
        metrics=tuple(params.patterns),
    )
    cwd = Path(place) if place is not None else folder.absolute() / ".work"
    own = OwnProgram(
        words=params.words,
        cwd=cwd,
        executable=executable,
        wishes=wishes,
        variables=parse_settings(params.settings),
    )
    return own, params.timeout_s


_NO_PYTHON = (
    "No steps of this program were seen from outside: it starts no Python in which the hooks could "
    "enter, or one that ignores PYTHONPATH or hooks (`-I`, `-E`, `-S`), or whose PYTHONPATH was "
    "taken away or set anew, where adding to it would do"
)
_NO_STEPS = (
    "No steps of this program were seen from outside (it calls no PyTorch module and steps no "
    "optimizer in Python)"
)
_INSTEAD = (
    ", so it has no clean latency. What repeats in the capture of an nsys pass is shown as the "
    "time of a step under nsys, which contains nsys's own cost: a program that launches many short "
    "kernels takes longer there. Clean are the time of the whole program (`program_time`), what it "
    "prints (`--metric`), and steps that it marks (`warpboard_marks`)"
)


def _ended_at_limit(after_s: float) -> dict[str, str]:
    message = (
        f"the program was ended at the time limit, after {after_s:.0f} s; what it did until then "
        "was measured. `--timeout` sets the limit, `--steps` ends it earlier"
    )
    return {"code": "time_limit", "message": message}


def _why_no_capture(pass_name: str, main: Process | None) -> dict[str, str]:
    if main is None:
        message = f"{pass_name}: the program called no PyTorch module"
    elif main.facts.get("refused"):
        message = f"{pass_name}: {main.facts['refused']}"
    elif pass_name == "memory" and (main.facts.get("device") or {}).get("name") == "cpu":
        message = "memory: the history is that of CUDA's allocator, and the program used none"
    else:
        message = f"{pass_name}: the program ended before the steps that were to be captured"
    return {"code": "memory_history_unavailable" if pass_name == "memory" else "no_steps_seen",
            "message": message}  # fmt: skip


def public_words(words: Sequence[str]) -> list[str]:
    """Return the words as they may leave the host: home folder and secrets left out."""
    clean = LogCleaner().text
    public: list[str] = []
    for i, text in enumerate(words):
        name, sign, _ = text.partition("=")
        previous = words[i - 1].lower() if i else ""
        if sign and name.startswith("-") and any(s in name.lower() for s in _SECRET):
            public.append(f"{name}=(removed)")
        elif (
            i
            and previous.startswith("-")
            and "=" not in previous
            and any(s in previous for s in _SECRET)
        ):
            public.append("(removed)")
        else:
            public.append(clean(text))
    return public
