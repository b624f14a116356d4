"""Find the numbers that a job's patterns meet in what its program printed.

`python -m worker.printed PATTERNS FILE...` prints a list for each of the JSON list of patterns. It
is a process of its own, so that a pattern that takes for ever can be ended.
"""

import json
import math
import re
import sys
from contextlib import suppress
from pathlib import Path

from captures.contents import open_plain
from core.errors import CaptureError

MAX_VALUES = 1_000_000
MAX_LINE_BYTES = 10_000
"""A longer line is looked through in parts."""


def main() -> int:
    patterns, *files = sys.argv[1:]
    found = [values_of(re.compile(text), [Path(f) for f in files]) for text in json.loads(patterns)]
    sys.stdout.write(json.dumps(found))
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
