"""What the person at the terminal sees of `warpboard profile`."""

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from core.console import note
from core.numbers import decimal
from core.spec import PROGRAM_TIME
from worker.profile.latency import ALONE, TO_NEXT

SLOWER = {"nsys": 1.3, "trace": 1.5, "memory": 1.2, "ncu": 3.0}
"""A profiled process against the clean one, for the estimate of the time left."""


class Progress:
    """Tells which pass runs, how long the rest will take, and what each pass found."""

    def __init__(
        self, *, passes: Sequence[str], repeats: int, quiet: bool, is_json: bool = False
    ) -> None:
        self._plan = ["clean"] * repeats + list(passes)
        self._done = 0
        self._clean_s: float | None = None
        self._quiet = quiet
        self._is_json = is_json
        self._started = time.monotonic()
        self._shows_program = False
        self._is_within_line = False

    def program_output(self, stream: str, data: bytes) -> None:
        """Pass on what the program prints in its first process, byte by byte as it comes.

        Not by lines: prompts and progress bars end none, and a pipe may carry what is no text.
        Standard output belongs to the JSON document where one was asked for.
        """
        file = sys.stdout if stream == "stdout" and not self._is_json else sys.stderr
        if not self._shows_program or file is None:
            return
        file.flush()
        file.buffer.write(data)
        file.buffer.flush()
        if file is sys.stderr:
            self._is_within_line = not data.endswith(b"\n")

    def begins(self, name: str, process: int, captured: tuple[int, int] | None = None) -> None:
        """Report which pass starts, what it captures, and the time left."""
        self._shows_program = name == "clean" and process == 0 and not self._quiet
        text = f"[{self._done + 1}/{len(self._plan)}] {name}"
        if name == "clean":
            text += ": the program alone" + (f", process {process + 1}" if process else "")
        elif captured is not None:
            first, count = captured
            steps = f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"
            text += f": {steps}"
        left = self._left_s()
        note(f"warpboard: {text}" + (f"; about {_time(left)} left" if left is not None else ""))

    def remark(self, text: str) -> None:
        """Say something about the pass that runs."""
        self._end_line()
        note(f"warpboard:       {text}")

    def _end_line(self) -> None:
        if self._is_within_line:
            note("")
            self._is_within_line = False

    def left_out(self, why: str) -> None:
        """Say that a pass is not run."""
        self._done += 1
        note(f"warpboard: [{self._done}/{len(self._plan)}] {why}")

    def _left_s(self) -> float | None:
        if self._clean_s is None:
            return None
        return sum(self._clean_s * SLOWER.get(name, 1.0) for name in self._plan[self._done :])

    def ended(self, record: Mapping[str, Any]) -> None:
        """Say what the pass found."""
        self._done += 1
        self._end_line()
        if record["pass"] == "clean":
            self._clean_s = record["duration_s"]
        note(f"warpboard:       {_found(record)} ({_time(record['duration_s'])})")
        for warning in record["warnings"]:
            note(f"warpboard:       note: {warning['message']}")

    def summary(self, manifest: Mapping[str, Any]) -> str:
        """Return the last words before the run is delivered."""
        clean = [p["result"] for p in manifest["passes"] if p["pass"] == "clean"]
        samples = [ns for result in clean for ns in result.get("samples_ns", ())]
        took = _time(time.monotonic() - self._started)
        if not samples:
            end = f": {manifest['error']}" if manifest["error"] else ""
            return f"warpboard: {manifest['status']} after {took}{end}"
        steps = clean[0]["steps"]
        return (
            f"warpboard: {manifest['status']} after {took}: {steps['title']}, "
            f"{decimal(statistics.median(samples) / 1e6)} ms {steps['latency']} "
            f"(median of {len(samples)})"
        )


def _found(record: Mapping[str, Any]) -> str:
    name, result = record["pass"], record["result"]
    if record["outcome"] != "ok":
        return f"{name}: {record['outcome']}"
    if name == "clean":
        return _latency(result)
    sizes = ", ".join(f"{c['file']} {c['bytes'] / 1e6:.2f} MB" for c in record["captures"])
    notes = record.get("notes") or {}
    counted = ""
    if "num_gpu_operations" in notes:
        counted = f"{notes['num_gpu_operations']} GPU operations in "
    elif "num_launches" in notes:
        counted = f"counters of {notes['num_launches']} launches in "
    return f"{counted}{sizes}" if sizes else f"{name}: nothing captured"


def _latency(result: Mapping[str, Any]) -> str:
    more = "".join(f"; {_metric(m)}" for m in result.get("metrics", ()))
    steps = result.get("steps")
    if not steps:
        return f"no steps seen{more}"
    times = result["phase_samples_ns"]
    first = [name for name in (TO_NEXT, ALONE) if name in times]
    parts = [
        f"{name} {decimal(statistics.median(times[name]) / 1e6)} ms"
        for name in (*first, *(n for n in times if n not in first))
    ]
    left_out = f", the first {steps['num_skipped']} skipped" if steps["num_skipped"] else ""
    number = f"{steps['num_steps']} step{'s' * (steps['num_steps'] != 1)}"
    found = f"{', '.join(parts)}, by {steps['clock']}" if parts else "none left to measure"
    return f"{number} ({steps['title']}{left_out}): {found}{more}"


def _metric(metric: Mapping[str, Any]) -> str:
    if metric["name"] == PROGRAM_TIME:
        return f"whole program {decimal(metric['value'])} s"
    return f"{metric['name']} {decimal(metric['value'], 5)}"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
