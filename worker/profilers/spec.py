"""What a profiler is: the seam between `worker.execute` and one tool."""

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captures.contents import file_sha256
from captures.kinds import CaptureKind
from captures.scrub import scrub
from captures.scrub.log import host_words
from core.spec import DEFAULT_NCU_SET
from worker.outcomes import Outcome
from worker.own_program import OwnProgram
from worker.tools import Tool


class ToolEndedError(Exception):
    """Report a helper command of a tool that had to be stopped: what it wrote is not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """One pass that is about to run, or has run."""

    workload: str
    params: Mapping[str, Any]
    pass_name: str
    process: int
    "Ordinal of the process among those of the same pass, from 0."
    python: str
    work_dir: Path
    "Folder of this pass's own files; the program's `--out`. Deleted afterwards."
    bundle_dir: Path
    "Folder of the bundle; captures go here."
    events_path: Path
    events_fd: int
    on_cpu: bool = False
    tool: Tool | None = None
    nsys_sqlite: Path | None = None
    "The nsys capture of the same run, if there is one."
    keep_private: bool = False
    keep_reports: bool = False
    "Keep the tools' own reports beside what is read from them."
    ncu_set: str = DEFAULT_NCU_SET
    run_tool: Callable[[list[str], str], Path] | None = None
    "Runs a helper command of the tool, its stdout to that file in work_dir; ToolEndedError."
    rank: int | None = None
    "Of a job over several GPUs: whose context this is; None where the job has one process."
    is_profiled: bool = True
    "Whether this rank is one of those that the pass records."
    own: OwnProgram | None = None
    "The user's own program, in place of one of ours."
    notes: dict[str, Any] = field(default_factory=dict)
    "Facts for the pass record, e.g. which kernels ncu was asked for."

    @property
    def spec_argv(self) -> list[str]:
        device = "cpu" if self.on_cpu else "cuda"
        spec = json.dumps(dict(self.params), sort_keys=True)
        chosen = [] if self.is_profiled else ["--not-profiled"]
        return ["--spec", spec, "--pass", self.pass_name, "--device", device, *chosen]

    def capture_path(self, suffix: str, number: int = 0) -> Path:
        """Return where a capture goes: `PASS-PROCESS[-rankN][-NUMBER].SUFFIX` in the bundle."""
        rank = "" if self.rank is None else f"-rank{self.rank}"
        tail = f"-{number}" if number else ""
        return self.bundle_dir / f"{self.pass_name}-{self.process}{rank}{tail}.{suffix}"

    def store(self, source: Path, target: Path, kind: CaptureKind, **of_tool: Any) -> "Capture":
        """Bring a file into the bundle, cleaned unless what is private is to stay; CaptureError.

        A target that ends in `.gz` is packed. `of_tool`: see `capture`.
        """
        if not self.keep_private:
            removed = scrub(source, kind, target, host_words())
            return self.capture(target, kind, removed=removed, **of_tool)
        if target.suffix == ".gz" and source.suffix != ".gz":
            with open(source, "rb") as file, gzip.open(target, "wb") as out:
                shutil.copyfileobj(file, out)
        else:
            shutil.copyfile(source, target)
        return self.capture(target, kind, **of_tool)

    def capture(
        self,
        path: Path,
        kind: CaptureKind,
        *,
        removed: tuple[str, ...] = (),
        tool: str = "",
        tool_version: str | None = None,
    ) -> "Capture":
        """Return the record of a file of the bundle; its tool is the pass's own unless named."""
        if self.tool is not None:
            tool, tool_version = self.tool.name, self.tool.version
        return Capture(
            path=path,
            kind=str(kind),
            tool=tool,
            tool_version=tool_version,
            private_removed=removed,
            rank=self.rank,
        )

    def program(self, *extra: str) -> list[str]:
        """Return the workload's own command, events on an inherited descriptor."""
        if self.rank is not None:
            return self.program_under_tool(*extra)
        if self.own is not None:
            return self.own.argv
        return [
            *(self.python, "-m", "workloads", self.workload),
            *self.spec_argv,
            *("--events-fd", str(self.events_fd), "--out", str(self.work_dir)),
            *extra,
        ]

    def program_under_tool(self, *extra: str, switch: str = "") -> list[str]:
        """Return the same for a program that a profiler starts; see `worker/child.py`."""
        if self.own is not None:
            return self.own.argv
        return [
            *(self.python, "-m", "worker.child", str(self.events_path), switch, self.workload),
            *self.spec_argv,
            *("--out", str(self.work_dir)),
            *extra,
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One file of the bundle."""

    path: Path
    kind: str
    "A value of CaptureKind."
    tool: str
    tool_version: str | None = None
    private_removed: tuple[str, ...] = ()
    rank: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the manifest's entry; reads the whole file for its hash."""
        return {
            "file": self.path.name,
            "kind": self.kind,
            "tool": self.tool,
            "tool_version": self.tool_version,
            "bytes": self.path.stat().st_size,
            "sha256": file_sha256(self.path),
            "private_removed": list(self.private_removed),
            **({} if self.rank is None else {"rank": self.rank}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Files of a pass, and an outcome worse than the process reported."""

    captures: tuple[Capture, ...] = ()
    outcome: Outcome | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    "(code, message)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerSpec:
    """A tool: can it run here, how is it called, what does it leave."""

    name: str
    needs_tool: bool
    probe: Callable[[], Tool]
    "Finds the tool; `Tool.fault` says why it cannot be used. Spawns processes."
    command: Callable[[PassContext], list[str]]
    captures: Callable[[PassContext, Mapping[str, Any] | None], Collected]
    "Takes the result line; moves files from work_dir into bundle_dir. May spawn processes."
