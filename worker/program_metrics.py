"""The numbers that a program prints, found by the patterns of its job. Standard library only."""

import json
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from captures.contents import open_plain
from core.errors import CaptureError
from core.metric_patterns import BETTER, metric_name, metric_pattern
from core.python import module_command, with_rooms
from worker.environment import job_environment

MAX_VALUES = 1_000_000
MAX_LINE_BYTES = 10_000
"""A longer line is looked through in parts."""


def values_of(pattern: re.Pattern[str], files: list[Path]) -> list[float]:
    """Return the finite numbers in the pattern's group, in the order of files and lines."""
    values: list[float] = []
    for path in files:
        with suppress(OSError, CaptureError), open_plain(path) as file:
            while len(values) < MAX_VALUES and (line := file.readline(MAX_LINE_BYTES)):
                for text in pattern.findall(line.decode(errors="replace")):
                    with suppress(ValueError):
                        value = float(text.replace(",", "").replace("_", ""))
                        values += [value] if math.isfinite(value) else []
    return values


METRICS_LIMIT_S = 60.0
"""So long may a job's patterns look through what its program printed."""


def printed_metrics(
    patterns: Sequence[str], files: Sequence[Path]
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the median of what each pattern finds, and a warning where it finds none."""
    printed = _printed_values(patterns, files) if patterns else []
    if printed is None:
        message = f"metrics: looking for them took more than {METRICS_LIMIT_S:.0f} s"
        return [], [{"code": "metric_not_printed", "message": message}]
    metrics: list[dict[str, Any]] = []
    warnings = []
    for text, values in zip(patterns, printed, strict=True):
        if values:
            metric = {"name": metric_name(text), "value": statistics.median(values), "unit": ""}
            named = metric_pattern(text).groupindex
            better = [{"better": word} for word in BETTER if word in named]
            metrics.append(metric | (better[0] if better else {}))
        else:
            message = f"metric {text!r}: the program printed nothing that it matches"
            warnings.append({"code": "metric_not_printed", "message": message})
    return metrics, warnings


def _printed_values(patterns: Sequence[str], files: Sequence[Path]) -> list[list[float]] | None:
    """Return the values that each pattern meets; None where looking for them does not end.

    In a process of its own: a pattern such as `(a+)+b` may take years, and nothing stops it here.
    """
    command = module_command("worker.program_metrics", json.dumps(list(patterns)), *map(str, files))
    try:
        done = subprocess.run(
            command,
            env=with_rooms(job_environment()),
            check=False,
            stdout=subprocess.PIPE,
            timeout=METRICS_LIMIT_S,
        )
        values: list[list[float]] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return values


def main() -> int:
    patterns, *files = sys.argv[1:]
    found = [values_of(re.compile(text), [Path(f) for f in files]) for text in json.loads(patterns)]
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
