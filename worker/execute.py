"""One job -> one bundle: the clean passes, then the profiler passes, then `manifest.json`.

A profiler pass that fails never costs the clean numbers: the run is done, with a warning that says
what is missing, why, and what helps. See docs/architecture.md for the bundle.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from core import VERSION
from core.errors import UserError
from core.spec import JobSpec
from worker.joblog import EventSink, JobLog, utc_now
from worker.outcomes import Outcome, OutcomeCode
from worker.own_program import OwnProgram, allowed_own
from worker.passes import GpuTarget, PassRunner
from worker.process import OutputCallback
from worker.profilers.ncu_choice import launch_limit

SCHEMA_VERSION = 1
REPORTS_VARIABLE = "WARPBOARD_KEEP_REPORTS"
REPORT_CHOICES = ("asked", "always", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Time limits of one process of a pass; the whole tree is told to stop, later killed."""

    clean_s: float = 3600.0
    profiled_s: float = 5400.0
    grace_s: float = 15.0

    @classmethod
    def from_environment(cls) -> "JobLimits":
        """Return the limits of this host: WARPBOARD_TIME_LIMIT_S is for one process of any pass.

        UserError if it is not a positive number.
        """
        text = os.environ.get("WARPBOARD_TIME_LIMIT_S")
        if not text:
            return cls()
        try:
            limit_s = float(text)
        except ValueError:
            limit_s = 0.0
        if not limit_s > 0:
            raise UserError(f"WARPBOARD_TIME_LIMIT_S: {text!r} is not a positive number of seconds")
        return cls(clean_s=limit_s, profiled_s=limit_s)

    def soft_s(self, pass_name: str) -> float:
        return self.clean_s if pass_name == "clean" else self.profiled_s


def execute(
    spec: JobSpec,
    out_dir: Path,
    *,
    on_event: EventSink | None = None,
    should_cancel: Callable[[], bool] | None = None,
    limits: JobLimits | None = None,
    python: str | None = None,
    gpu: GpuTarget | None = None,
    run_id: str | None = None,
    keep_private: bool = False,
) -> dict[str, Any]:
    """Run the job and return the manifest, which is also in `out_dir` beside the captures.

    Spawns processes and ends them all. What the job does wrong is in the manifest's `status` and
    `error`; only a fault of this host (disk full, no permission) raises.
    """
    job = Job(spec, out_dir, gpu=gpu or GpuTarget(), on_event=on_event, keep_private=keep_private)
    job.prepare(python=python, limits=limits or JobLimits(), should_cancel=should_cancel)
    try:
        for process in range(spec.repeats):
            job.run_clean(process)
        job.run_profilers()
        return job.finish(run_id)
    finally:
        job.close()


@dataclass
class Job:
    """The state of one job between its passes; `run_bundle` interleaves several of them."""

    spec: JobSpec
    out_dir: Path
    _: KW_ONLY
    gpu: GpuTarget
    on_event: EventSink | None = None
    keep_private: bool = False
    own: OwnProgram | None = None
    on_output: OutputCallback | None = None
    on_note: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.out_dir.mkdir(parents=True, exist_ok=True)
        self.log = JobLog(self.out_dir / "log.txt", self.on_event)
        self._started_at = utc_now()
        self._passes: list[dict[str, Any]] = []
        self._left_out: list[dict[str, str]] = []
        self._failure: Outcome | None = None
        self._runner: PassRunner | None = None

    def prepare(
        self,
        *,
        python: str | None,
        limits: JobLimits,
        should_cancel: Callable[[], bool] | None,
    ) -> None:
        """Get ready for the passes; UserError where this host's settings are wrong."""
        if "ncu" in self.spec.profilers:
            launch_limit()
        keeps_reports(self.spec)
        if self.own is None and self.spec.workload == "command":
            self.own, longest_s = allowed_own(self.spec, self.out_dir)
            limits = replace(limits, clean_s=min(limits.clean_s, longest_s),
                             profiled_s=min(limits.profiled_s, longest_s))  # fmt: skip
        self._runner = PassRunner(
            spec=self.spec,
            bundle_dir=self.out_dir,
            python=python or os.environ.get("WARPBOARD_PYTHON") or sys.executable,
            gpu=self.gpu,
            log=self.log,
            soft_s=limits.soft_s,
            grace_s=limits.grace_s,
            should_cancel=should_cancel or (lambda: False),
            keep_private=self.keep_private,
            keep_reports=self.keep_private or keeps_reports(self.spec),
            num_steps=self.spec.repeats + len(self.spec.profilers),
            own=self.own,
            on_output=self.on_output,
            on_note=self.on_note,
        )

    @property
    def is_stopped(self) -> bool:
        """Whether an earlier pass ended the job: nothing more is worth running."""
        return self._failure is not None

    def run_clean(self, process: int, order: int | None = None) -> None:
        """Run one process of the clean pass; its failure is the job's."""
        if self.is_stopped:
            return
        outcome = self._run("clean", process, order)
        if not outcome.is_ok:
            self._failure = outcome

    def run_profilers(self) -> None:
        """Run the wanted profiler passes; after an OOM only the memory pass, which shows why."""
        for name in self.spec.profilers:
            stopped = self._failure is not None
            wants_history = stopped and name == "memory" and self._failure_is(OutcomeCode.OOM)
            if stopped and not wants_history:
                continue
            why = self.own.why_left_out(name) if self.own is not None and not stopped else None
            if why:
                self.leave_out(why)
            else:
                self.run_profiler(name)

    def run_profiler(self, name: str) -> None:
        """Run one profiler pass; only a cancel ends the job."""
        if self._run(name, 0, None).code is OutcomeCode.CANCELLED:
            self._failure = Outcome(code=OutcomeCode.CANCELLED, message="cancelled")

    def leave_out(self, why: dict[str, str]) -> None:
        """Note the warning that says why a pass is not run."""
        self._left_out.append(why)
        self.log.state(why["message"])

    @property
    def last_record(self) -> Mapping[str, Any]:
        """Return the manifest's record of the pass that ended last."""
        return self._passes[-1]

    def _failure_is(self, code: OutcomeCode) -> bool:
        return self._failure is not None and self._failure.code is code

    def _run(self, name: str, process: int, order: int | None) -> Outcome:
        assert self._runner is not None
        record, outcome = self._runner.run(name, process)
        if order is not None:
            record["order"] = order
        self._passes.append(record)
        return outcome

    def finish(self, run_id: str | None = None, *, keeps_cut_off: bool = False) -> dict[str, Any]:
        """Write and return the manifest.

        A job that was stopped is done all the same where `keeps_cut_off` and it has samples.
        """
        status, error, oom = self._verdict()
        has_samples = any(p["result"].get("samples_ns") for p in self._passes)
        if keeps_cut_off and status == "cancelled" and has_samples:
            status = "done"
        results = [p["result"] for p in self._passes if p["result"]]
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "warpboard_version": VERSION,
            "job": self.spec.as_dict(),
            "run_id": run_id,
            "status": status,
            "error": error,
            "oom": oom,
            "started_at": self._started_at,
            "finished_at": utc_now(),
            "gpu": self._gpu_record(results),
            "environment": {
                **_environment(results, self.gpu),
                **(self.own.source if self.own else {}),
            },
            "passes": self._passes,
            "warnings": self._left_out,
            "log": self.log.path.name,
        }
        self.log.state(f"{status}{': ' + error if error else ''}")
        write_json(self.out_dir / "manifest.json", manifest)
        return manifest

    def _verdict(self) -> tuple[str, str | None, Mapping[str, Any] | None]:
        failure = self._failure
        if failure is None:
            return "done", None, None
        if failure.code is OutcomeCode.CANCELLED:
            return "cancelled", None, None
        if failure.code is OutcomeCode.OOM:
            return "oom", failure.sentence, failure.oom or {}
        return "failed", failure.sentence, None

    def _gpu_record(self, results: list[dict[str, Any]]) -> dict[str, Any]:
        device: Mapping[str, Any] = next((r["device"] for r in results if r.get("device")), {})
        record: dict[str, Any] = {
            "model": device.get("name") or self.spec.gpu,
            "uuid": None,
            "compute_capability": device.get("compute_capability"),
            "num_sms": device.get("num_sms"),
            "memory_bytes": device.get("memory_bytes"),
            "driver": None,
            "peaks": {},
            "noise_floor_frac": None,
        }
        return record | {k: v for k, v in self.gpu.facts.items() if v is not None}

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self.log.close()


def keeps_reports(spec: JobSpec) -> bool:
    """Say whether the tools' own reports stay: the host's setting, else as the job asks."""
    host = os.environ.get(REPORTS_VARIABLE) or "asked"
    if host not in REPORT_CHOICES:
        raise UserError(f"{REPORTS_VARIABLE}: {host!r} is not one of {', '.join(REPORT_CHOICES)}")
    return host == "always" or (host == "asked" and spec.keep_reports)


def _environment(results: list[dict[str, Any]], gpu: GpuTarget) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for result in results:
        merged = {**(result.get("environment") or {}), **merged}
    if gpu.facts.get("driver"):
        merged.setdefault("driver", gpu.facts["driver"])
    return merged


def warnings_of(manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the warnings of the run and of its passes, each once, with the pass it came from."""
    seen: dict[tuple[str, str], dict[str, str]] = {
        (w["code"], w["message"]): dict(w) for w in manifest["warnings"]
    }
    for record in manifest["passes"]:
        for warning in record["warnings"]:
            key = (warning["code"], warning["message"])
            seen.setdefault(key, {**warning, "pass": record["pass"]})
    return list(seen.values())


def write_json(path: Path, value: Any) -> None:
    """Write a file that is either whole or absent."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    part.replace(path)
