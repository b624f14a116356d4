"""Find a workload's result line in what its process printed."""

import json
import os
from pathlib import Path
from typing import Any

TAIL_BYTES = 1 << 16


def load_result(stdout_path: Path) -> dict[str, Any] | None:
    """Return the last line of stdout that is a result; None when there is none.

    Tools print after the program, so it need not be the very last line.
    """
    found: dict[str, Any] | None = None
    with open(stdout_path, encoding="utf-8", errors="replace") as file:
        for line in file:
            start = line.find('{"')
            if start < 0 or '"status"' not in line:
                continue
            try:
                value = json.loads(line[start:])
            except ValueError:
                continue
            if isinstance(value, dict) and {"status", "workload"} <= value.keys():
                found = value
    return found


def tail_text(*paths: Path) -> str:
    """Return the ends of text files, one after the other."""
    parts = []
    for path in paths:
        if path.is_file():
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - TAIL_BYTES), os.SEEK_SET)
                parts.append(file.read().decode(errors="replace"))
    return "\n".join(parts)
