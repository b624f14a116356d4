"""Run one process of one pass, or its ranks, and return its manifest record and outcome."""

import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from captures.scrub.log import LogCleaner
from core.python import module_command, with_rooms
from core.spec import JobSpec
from worker.clocks import ClockMonitor
from worker.environment import job_environment
from worker.joblog import JobLog, utc_now
from worker.left_behind import LeftBehind
from worker.outcomes import Outcome, OutcomeCode, judge, load_result, tail_text
from worker.own_program import OwnProgram, public_words
from worker.process import OutputCallback, ProcessLimits, ProcessResult, run_process
from worker.profilers import PROFILERS
from worker.profilers.spec import Capture, Collected, PassContext, ProfilerSpec, ToolEndedError
from worker.ranks import RESULT_FILE, STOPPED
from worker.tools import Tool
from workloads.spec import ALL_RANKS, parse_ranks

EXPORT_LIMIT_S = 900.0
MAX_TOOL_OUTPUT_BYTES = 4 << 30
SCRATCH = ".work"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget:
    """The GPU that a job runs on; the default is the CPU."""

    visible_devices: str | None = None
    "Value of CUDA_VISIBLE_DEVICES; None leaves the environment as it is."
    smi_selector: str | None = None
    "UUID or ordinal for nvidia-smi; None when there is no GPU."
    facts: Mapping[str, Any] = field(default_factory=dict)
    "model, uuid, compute_capability, num_sms, memory_bytes, driver, peaks, noise_floor_frac."


def child_environment(gpu: GpuTarget) -> dict[str, str]:
    """Return the environment of workloads: rooms importable, the one GPU visible."""
    env = with_rooms(job_environment())
    env["PYTHONUNBUFFERED"] = "1"
    env["LC_ALL"] = "C.UTF-8"
    env["NSYS_NVTX_PROFILER_REGISTER_ONLY"] = "0"
    if gpu.visible_devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = gpu.visible_devices
    return env


@dataclass(kw_only=True)
class PassRunner:
    """Runs the passes of one job; keeps their scratch files until `close`."""

    spec: JobSpec
    bundle_dir: Path
    python: str
    gpu: GpuTarget
    log: JobLog
    soft_s: Callable[[str], float]
    grace_s: float
    should_cancel: Callable[[], bool]
    keep_private: bool
    keep_reports: bool
    num_steps: int
    own: OwnProgram | None = None
    on_output: OutputCallback | None = None
    on_note: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.bundle_dir = self.bundle_dir.absolute()
        self._step = 0
        # In the bundle, so that it goes with the bundle when this process is killed.
        self._scratch = self.bundle_dir / SCRATCH
        self._scratch.mkdir(exist_ok=True)
        self._nsys_sqlite: Path | None = None
        self._shorten = LogCleaner().text

    def run(self, pass_name: str, process: int) -> tuple[dict[str, Any], Outcome]:
        """Return (manifest record, outcome). Spawns processes and ends them."""
        profiler = PROFILERS[pass_name]
        started_at = utc_now()
        tool = profiler.probe() if profiler.needs_tool else None
        if tool is not None and not tool.is_usable:
            on_cpu = self.spec.gpu == "cpu" and tool.path is None
            fix = "On a CPU choose the trace profiler" if on_cpu else tool.fix
            message = f"{pass_name}: {tool.fault}. {fix}"
            outcome = Outcome(code=OutcomeCode.TOOL_MISSING, message=message)
            return self._skip(pass_name, process, started_at, outcome), outcome
        work_dir = self._scratch / f"{pass_name}-{process}"
        work_dir.mkdir(parents=True, exist_ok=True)
        events_path = work_dir / "events.jsonl"
        events_fd = os.open(events_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            context = self._context(profiler, process, tool, work_dir, events_path, events_fd)
            ranks = self._rank_contexts(context)
            command = _rank_launch(profiler, ranks) if ranks else profiler.command(context)
            shown = profiler.command(ranks[0]) if ranks else command
            self._log_command(f"{pass_name} {process}", shown)
            monitor = ClockMonitor(self.gpu.smi_selector)
            monitor.start()
            try:
                result = self._run_command(context, command)
            finally:
                clocks = monitor.stop()
        finally:
            os.close(events_fd)
        record, outcome = self._record(profiler, context, ranks, shown, result)
        record |= {"started_at": started_at, "clocks": clocks}
        self.log.state(f"{pass_name} {process}: {outcome.code} {outcome.sentence}".rstrip())
        self._step += 1
        return record, outcome

    def _context(
        self,
        profiler: ProfilerSpec,
        process: int,
        tool: Tool | None,
        work_dir: Path,
        events_path: Path,
        events_fd: int,
    ) -> PassContext:
        def run_tool(command: list[str], name: str) -> Path:
            """Run a helper of the tool; return the file with its stdout."""
            out = work_dir / name
            self._log_command(f"{profiler.name} {process}", command)
            limits = ProcessLimits(
                soft_s=EXPORT_LIMIT_S, grace_s=self.grace_s, output_bytes=MAX_TOOL_OUTPUT_BYTES
            )
            ended = run_process(
                command,
                stdout_path=out,
                stderr_path=work_dir / f"{name}.err",
                cwd=work_dir,
                env=child_environment(self.gpu) | {"LC_ALL": "C"},
                limits=limits,
                should_cancel=self.should_cancel,
            )
            if ended.killed_by in ("timeout", "output", "supervisor lost"):
                why = "wrote without end" if ended.killed_by == "output" else "did not end"
                program = f"{Path(command[0]).name} {command[1]}"
                raise ToolEndedError(
                    f"{program} {why} and was stopped after {ended.duration_s:.0f} s"
                )
            return out

        return PassContext(
            workload=self.spec.workload,
            params=self.spec.params,
            pass_name=profiler.name,
            process=process,
            python=self.python,
            work_dir=work_dir,
            bundle_dir=self.bundle_dir,
            events_path=events_path,
            events_fd=events_fd,
            on_cpu=self.spec.gpu == "cpu",
            tool=tool,
            nsys_sqlite=self._nsys_sqlite,
            keep_private=self.keep_private,
            keep_reports=self.keep_reports,
            ncu_set=self.spec.ncu_set,
            run_tool=run_tool,
            own=self.own,
        )

    def _rank_contexts(self, context: PassContext) -> list[PassContext]:
        """Return the context of each rank, its files in a folder of its own; [] for one process."""
        num_ranks = self.spec.num_gpus
        if num_ranks == 1:
            return []
        profiled = parse_ranks(str(self.spec.params.get("profiled_ranks", ALL_RANKS)), num_ranks)
        contexts = []
        for rank in range(num_ranks):
            folder = context.work_dir / f"rank{rank}"
            folder.mkdir(exist_ok=True)
            events = context.events_path if rank == 0 else folder / "events.jsonl"
            is_profiled = context.pass_name == "clean" or rank in profiled
            contexts.append(
                replace(
                    context,
                    work_dir=folder,
                    events_path=events,
                    rank=rank,
                    is_profiled=is_profiled,
                    notes={},
                )
            )
        return contexts

    def _run_command(self, context: PassContext, command: list[str]) -> ProcessResult:
        base = {
            "pass": context.pass_name,
            "process": context.process,
            "step": self._step,
            "num_steps": self.num_steps,
        }

        def on_event(event: dict[str, Any]) -> None:
            if event.get("event") == "progress":
                stage = {k: event.get(k) for k in ("stage", "done", "total")}
                self.log.progress(base | stage)

        def on_line(stream: str, line: str) -> None:
            if line.strip() and not line.lstrip().startswith('{"schema_version"'):
                self.log.line(line)

        self.log.progress(base | {"stage": "start", "done": 0, "total": 1})
        if self.own is not None:
            self.own.left_behind = LeftBehind(self._say_left)
        return run_process(
            command,
            stdout_path=context.work_dir / "stdout.txt",
            stderr_path=context.work_dir / "stderr.txt",
            cwd=context.work_dir if self.own is None else self.own.cwd,
            env=self._environment(context),
            events_path=context.events_path,
            pass_fds=(context.events_fd,),
            stdin=None if self.own is None else self.own.stdin,
            limits=ProcessLimits(soft_s=self.soft_s(context.pass_name), grace_s=self.grace_s),
            on_line=on_line,
            on_output=self.on_output,
            on_event=on_event,
            should_cancel=self.should_cancel,
            left_behind=None if self.own is None else self.own.left_behind,
        )

    def _say_left(self, text: str) -> None:
        self.log.line(text)
        if self.on_note is not None:
            self.on_note(text)

    def _environment(self, context: PassContext) -> dict[str, str]:
        if self.own is None:
            return child_environment(self.gpu)
        env = self.own.environment(context.pass_name, context.work_dir)
        if self.gpu.visible_devices is not None:
            env["CUDA_VISIBLE_DEVICES"] = self.gpu.visible_devices
        return env

    def _result(self, context: PassContext, process: ProcessResult) -> dict[str, Any] | None:
        if self.own is None:
            return load_result(process.stdout_path)
        return self.own.result(context.pass_name, context.work_dir, process, self.spec.params)

    def _record(
        self,
        profiler: ProfilerSpec,
        context: PassContext,
        ranks: list[PassContext],
        command: list[str],
        process: ProcessResult,
    ) -> tuple[dict[str, Any], Outcome]:
        result = self._result(context, process)
        outcome = judge(
            result=process,
            text=tail_text(process.stderr_path, process.stdout_path),
            workload_result=result,
            tool=profiler.name if profiler.needs_tool else None,
        )
        outcome = _say_how_far(self._check_device(outcome, result), process.stderr_path)
        if outcome.code is OutcomeCode.TIMEOUT and _was_measured(self.own, result):
            outcome = Outcome(code=OutcomeCode.OK)
        if outcome.is_ok and _ended_by_tool(self.own, profiler, process):
            outcome = Outcome(code=OutcomeCode.OK)
        collected = Collected()
        if outcome.code not in (OutcomeCode.CANCELLED, OutcomeCode.TOOL_MISSING):
            try:
                collected = (
                    _collect(profiler, ranks) if ranks else profiler.captures(context, result)
                )
            except ToolEndedError as exc:
                stopped = Outcome(code=OutcomeCode.TOOL_CRASHED, message=str(exc))
                collected = Collected(outcome=stopped)
        if outcome.is_ok and collected.outcome is not None:
            outcome = collected.outcome
        if profiler.name == "nsys" and collected.captures:
            self._nsys_sqlite = collected.captures[0].path
        for rank in ranks:
            context.notes.update({f"rank{rank.rank}": rank.notes} if rank.notes else {})
        record = {
            "pass": profiler.name,
            "process": context.process,
            "status": _status(outcome),
            "returncode": process.returncode,
            "duration_s": round(process.duration_s, 3),
            "command": self._public_command(command),
            "error": None if outcome.is_ok else outcome.sentence or None,
            "outcome": str(outcome.code),
            "result": result or {},
            "captures": [c.as_dict() for c in self._kept(collected.captures)],
            "warnings": _warnings(profiler.name, result, collected, outcome),
        }
        return record | ({"notes": context.notes} if context.notes else {}), outcome

    def _kept(self, captures: tuple[Capture, ...]) -> list[Capture]:
        return [c for c in captures if c.path.is_file()]

    def _check_device(self, outcome: Outcome, result: Mapping[str, Any] | None) -> Outcome:
        """Fail a GPU job that the program, finding no GPU, ran on the CPU."""
        device = (result or {}).get("device") or {}
        wants_gpu = self.spec.gpu != "cpu" and self.own is None
        if outcome.is_ok and wants_gpu and device and not device.get("compute_capability"):
            return Outcome(
                code=OutcomeCode.WORKLOAD_FAILED,
                message=f"PyTorch sees no CUDA device, it ran on {device.get('name', 'the CPU')}",
            )
        return outcome

    def _public_command(self, command: list[str]) -> list[str]:
        """Return the command without this host's folders."""
        scratch = f"{self._scratch}/"
        command = command if self.own is None else public_words(command)
        shown = [self._shorten(part.replace(scratch, "")) for part in command]
        return [Path(p).name if p.startswith("/") else p for p in shown]

    def _log_command(self, label: str, command: list[str]) -> None:
        self.log.state(f"{label}: {shlex.join(self._public_command(command))[:2000]}")

    def _skip(
        self, pass_name: str, process: int, started_at: str, outcome: Outcome
    ) -> dict[str, Any]:
        self.log.state(f"{pass_name} {process}: {outcome.code} {outcome.message}")
        self._step += 1
        warning = {"code": str(outcome.code), "message": outcome.message}
        return {
            "pass": pass_name,
            "process": process,
            "status": _status(outcome),
            "returncode": None,
            "duration_s": 0.0,
            "started_at": started_at,
            "command": [],
            "error": outcome.message,
            "outcome": str(outcome.code),
            "result": {},
            "clocks": {},
            "captures": [],
            "warnings": [warning],
        }

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)


def _rank_launch(profiler: ProfilerSpec, ranks: list[PassContext]) -> list[str]:
    """Return the command that starts all ranks; writes its plan."""
    plan = [
        {
            "command": profiler.command(rank) if rank.is_profiled else rank.program_under_tool(),
            "folder": str(rank.work_dir),
            "events": str(rank.events_path),
        }
        for rank in ranks
    ]
    path = ranks[0].work_dir.parent / "ranks.json"
    path.write_text(json.dumps(plan))
    return module_command("worker.ranks", str(path))


def _was_measured(own: OwnProgram | None, result: Mapping[str, Any] | None) -> bool:
    """Say whether a user's program that was ended at the time limit had made its steps."""
    return own is not None and own.is_endless and bool(result and result.get("samples_ns"))


def _ended_by_tool(own: OwnProgram | None, profiler: ProfilerSpec, process: ProcessResult) -> bool:
    """Say whether the profiler ended a user's program, as it is told to once it has its steps."""
    is_told = own is not None and own.ends_early and profiler.needs_tool
    return is_told and process.returncode == 128 + signal.SIGTERM


def _say_how_far(outcome: Outcome, stderr_path: Path) -> Outcome:
    """Add to a time-out how far each rank was."""
    if outcome.code is not OutcomeCode.TIMEOUT:
        return outcome
    lines = tail_text(stderr_path).splitlines()
    far = next((ln.removeprefix(STOPPED) for ln in lines if ln.startswith(STOPPED)), "")
    return replace(outcome, message=f"{outcome.message} ({far})") if far else outcome


def _collect(profiler: ProfilerSpec, ranks: list[PassContext]) -> Collected:
    """Return the captures of all profiled ranks, and the first rank's worse outcome if any."""
    captures: list[Capture] = []
    warnings: dict[tuple[str, str], None] = {}
    outcome: Outcome | None = None
    for rank in (r for r in ranks if r.is_profiled):
        path = rank.work_dir / RESULT_FILE
        result = json.loads(path.read_text()) if path.is_file() else None
        collected = profiler.captures(rank, result)
        captures += collected.captures
        warnings |= dict.fromkeys(collected.warnings)
        if outcome is None and collected.outcome is not None:
            message = f"rank {rank.rank}: {collected.outcome.message}"
            outcome = replace(collected.outcome, message=message)
    return Collected(captures=tuple(captures), outcome=outcome, warnings=tuple(warnings))


def _warnings(
    pass_name: str, result: Mapping[str, Any] | None, collected: Collected, outcome: Outcome
) -> list[dict[str, str]]:
    """Return what the program and the tool warn of, and a profiler pass that failed."""
    warnings = [dict(w) for w in (result or {}).get("warnings", ())]
    warnings += [{"code": code, "message": text} for code, text in collected.warnings]
    if outcome.is_ok and outcome.message:
        message = f"{pass_name} pass: {outcome.message}"
        warnings.append({"code": "ended_after_result", "message": message})
    if pass_name != "clean" and not outcome.is_ok:
        message = f"{pass_name} pass: {outcome.sentence or outcome.code}"
        warnings.append({"code": str(outcome.code), "message": message})
    return warnings


def _status(outcome: Outcome) -> str:
    if outcome.code is OutcomeCode.OOM:
        return "oom"
    if outcome.code is OutcomeCode.CANCELLED:
        return "cancelled"
    return "ok" if outcome.is_ok else "failed"
