"""What each pass of `warpboard profile` costs a program: `python -m bench.profile_overhead`.

Each program times its own steps. It runs alone, with the hooks of the clean pass, under nsys, under
the PyTorch profiler and with the memory history, in turn, round after round; what is compared is
its own timer. The ratio to the bare program is that of neighbouring processes, and its interval
that of the rounds. Steps that a pass captures stand apart from those before and after them.

Needs a Python with torch, nothing else; transformers adds its programs, nsys its pass. Prints a
table, and JSON to `--json FILE`.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker.own_program import OwnProgram
from worker.process import ProcessResult
from worker.profilers import PROFILERS
from worker.profilers.spec import PassContext
from worker.tools import Tool, find_nsys

PROGRAMS = Path(__file__).resolve().parent / "programs"
OWN_TIMER = re.compile(r"^(\w+) (\d+): .*?([0-9.]+) ms$", re.M)
PASSES = ("clean", "nsys", "trace", "memory")
PROFILED_EVERY = 3
"""The passes whose cost is plain take part in one round of so many."""
SETTLED_FROM_FRAC = 0.3
T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t, two-sided 95 %, of 1, 2, ... degrees of freedom; 1.96 beyond."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that prints the time of its steps."""

    name: str
    args: Sequence[str]
    small: Sequence[str]
    "Arguments for a CPU."
    needs: str = "torch"
    steps_each: int = 1
    "Steps between two of its prints."


CAST = (
    Program("short_steps", (), ("--blocks", "12", "--layers", "2"), steps_each=50),
    Program(
        "train_encoder",
        (),
        ("--steps", "20", "--batch", "1", "--length", "64", "--layers", "1", "--width", "128"),
    ),
    Program(
        "compiled_model",
        ("--layers", "4"),
        ("--calls", "40", "--layers", "1", "--width", "64", "--length", "32", "--mode", "default"),
    ),
    Program(
        "hf_gpt2_train",
        (),
        ("--steps", "12", "--batch", "2", "--length", "32", "--layers", "2", "--width", "128"),
        needs="transformers",
    ),
)


@dataclass(slots=True)
class Process:
    """Figures of one process of a program."""

    own_ms: float
    "Median of its own timer, of settled steps that nothing captures."
    captured_ms: float | None = None
    "The same of the steps that the pass captures; None where the prints are too coarse."
    measured: dict[str, float] = field(default_factory=dict)
    "Of the clean pass: medians by kind of latency, in ms."


def main() -> None:
    """Run the rounds until the time is over, and print what they say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all rounds")
    parser.add_argument("--rounds", type=int, default=12, help="at most so many")
    parser.add_argument("--programs", default=",".join(p.name for p in CAST))
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    cast = [p for p in CAST if p.name in args.programs.split(",") and _has(p.needs)]
    passes = [p for p in PASSES if p in args.passes.split(",")]
    nsys = find_nsys()
    if "nsys" in passes and not nsys.is_usable:
        print(f"nsys: {nsys.fault}; its pass is left out", file=sys.stderr)
        passes.remove("nsys")
    benches = [Bench(p, p.small if args.small else p.args, nsys) for p in cast]
    stop_at = time.monotonic() + 60 * args.minutes
    for number in range(args.rounds):
        for bench in benches:
            if time.monotonic() < stop_at or number < 2:
                bench.round(number, passes)
                print(bench.last_words(number), file=sys.stderr, flush=True)
    rows = [row for bench in benches for row in bench.rows()]
    document = {"schema_version": 1, "gpu": _gpu_name(), "rows": rows}
    if args.json is not None:
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    print(_table(rows))


def _has(module: str) -> bool:
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
    return done.returncode == 0


def _gpu_name() -> str | None:
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or None


class Bench:
    """One program and the processes that it has run."""

    def __init__(self, program: Program, args: Sequence[str], nsys: Tool) -> None:
        self.program = program
        self._nsys = nsys
        self._each = program.steps_each
        path = str(PROGRAMS / f"{program.name}.py")
        self._own = OwnProgram(words=[sys.executable, path, *args])
        self._rounds: list[dict[str, Process]] = []

    def round(self, number: int, passes: Sequence[str]) -> None:
        """Run the bare program and the passes of this round, in an order that takes turns."""
        profiled = [p for p in passes if p != "clean"] if number % PROFILED_EVERY == 0 else []
        first = ["bare", *(p for p in passes if p == "clean")]
        order = first if number % 2 else first[::-1]
        if self._own.seen is None:  # the clean pass decides which steps the others capture
            order = first[::-1]
        processes = {name: self._run(name) for name in (*order, *profiled)}
        self._rounds.append({name: process for name, process in processes.items() if process})

    def _run(self, name: str) -> Process | None:
        """Run one process; None where it failed, which is said and costs its round alone."""
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            env = dict(os.environ)
            command = self._own.argv
            if name != "bare":
                env = self._own.environment(name, work)
            if name == "nsys":
                command = PROFILERS["nsys"].command(self._context(work))
            out, err = work / "out.txt", work / "err.txt"
            begin = time.monotonic()
            with open(out, "w") as stdout, open(err, "w") as stderr:
                code = subprocess.run(command, stdout=stdout, stderr=stderr, env=env).returncode
            printed = out.read_text()
            if code or len(OWN_TIMER.findall(printed)) < 4:
                output = f"{printed[-500:]}\n{err.read_text()[-1500:]}"
                print(f"{self.program.name} {name}: exit code {code}: {output}", file=sys.stderr)
                return None
            process = self._read(name, printed)
            if name == "clean":
                process.measured = self._measured(work, begin, code)
            return process

    def _context(self, work: Path) -> PassContext:
        return PassContext(
            workload="command",
            params={},
            pass_name="nsys",
            process=0,
            python=sys.executable,
            work_dir=work,
            bundle_dir=work,
            events_path=work / "events.jsonl",
            events_fd=-1,
            tool=self._nsys,
            own=self._own,
        )

    def _read(self, name: str, printed: str) -> Process:
        times = [float(ms) for _, _, ms in OWN_TIMER.findall(printed)]
        settled = range(int(SETTLED_FROM_FRAC * len(times)), len(times))
        captured: range | None = None
        if name not in ("bare", "clean"):
            first, count = self._own.captured(name)
            # Start and end of a capture wait for the GPU: the steps beside it are neither.
            captured = range(first // self._each, (first + count - 1) // self._each + 1)
            around = range(captured.start - 2, captured.stop + 2)
            settled_times = [times[i] for i in settled if i not in around]
            inner = [times[i] for i in captured[1:] if i < len(times)] if self._each == 1 else []
            return Process(
                statistics.median(settled_times), statistics.median(inner) if inner else None
            )
        return Process(statistics.median(times[i] for i in settled))

    def _measured(self, work: Path, begin: float, code: int) -> dict[str, float]:
        ended = ProcessResult(
            returncode=code,
            duration_s=time.monotonic() - begin,
            stdout_path=work / "out.txt",
            stderr_path=work / "err.txt",
        )
        result = self._own.result("clean", work, ended, {})
        samples = result.get("phase_samples_ns", {})
        cut = {k: v[int(SETTLED_FROM_FRAC * len(v)) :] for k, v in samples.items()}
        return {k: statistics.median(v) / 1e6 for k, v in cut.items() if v}

    def last_words(self, number: int) -> str:
        """Return what the last round said, in one line."""
        times = ", ".join(f"{k} {v.own_ms:.4f}" for k, v in self._rounds[-1].items())
        return f"round {number} {self.program.name}: {times} ms"

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each pass, against the bare program."""
        bare = [r["bare"].own_ms for r in self._rounds if "bare" in r]
        if not bare:
            return []
        base = {"program": self.program.name, "pass": "bare", "rounds": len(bare)}
        rows: list[dict[str, Any]] = [base | {"own_ms": statistics.median(bare)}]
        for name in PASSES:
            pairs = [(r["bare"], r[name]) for r in self._rounds if {"bare", name} <= set(r)]
            if not pairs:
                continue
            row: dict[str, Any] = {"program": self.program.name, "pass": name}
            row |= {"rounds": len(pairs), "own_ms": statistics.median(p.own_ms for _, p in pairs)}
            row["ratio"] = _ratio([(p.own_ms / b.own_ms) for b, p in pairs])
            inner = [(p.captured_ms / b.own_ms) for b, p in pairs if p.captured_ms is not None]
            if inner:
                row["captured_ratio"] = _ratio(inner)
            agreement = defaultdict(list)
            for _, process in pairs:
                for kind, ms in process.measured.items():
                    agreement[kind].append(ms / process.own_ms)
            row["measured_to_own"] = {k: _ratio(v) for k, v in agreement.items()}
            rows.append(row)
        return rows


def _ratio(values: Sequence[float]) -> dict[str, float | None]:
    """Return the geometric mean of ratios, and its 95 % interval where there are two or more."""
    logs = [math.log(v) for v in values]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return {"mean": math.exp(mean), "low": None, "high": None}
    t = T_95[len(logs) - 2] if len(logs) - 2 < len(T_95) else 1.96
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"mean": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half)}


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        (
            "program",
            "pass",
            "rounds",
            "own timer ms",
            "against bare",
            "captured steps",
            "step to step / own",
            "step alone / own",
        )
    ]
    for row in rows:
        measured = row.get("measured_to_own", {})
        lines.append(
            (
                row["program"],
                row["pass"],
                str(row["rounds"]),
                f"{row['own_ms']:.4f}",
                _percent(row.get("ratio")),
                _percent(row.get("captured_ratio")),
                _percent(measured.get("step to step")),
                _percent(measured.get("step alone")),
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _percent(ratio: dict[str, float | None] | None) -> str:
    if ratio is None or ratio["mean"] is None:
        return ""
    text = f"{100 * (ratio['mean'] - 1):+.2f} %"
    if ratio["low"] is None or ratio["high"] is None:
        return text
    return f"{text} ({100 * (ratio['low'] - 1):+.2f} to {100 * (ratio['high'] - 1):+.2f})"


if __name__ == "__main__":
    main()
