"""Print the table of `other_programs.sh`: what each program timed itself, what was measured."""

import json
import re
import statistics
import sys
from pathlib import Path

OWN_TIMER = re.compile(r"([0-9.]+) ms$", re.M)


def main() -> None:
    """Read OUT/NAME.txt and OUT/NAME/manifest.json of every program.

    Means on both sides: a program that times whole rounds prints means itself. The text holds what
    the clean pass printed; its first lines are warm-up.
    """
    rows: list[tuple[str, ...]] = [
        ("program", "own timer ms", "step to step ms", "off by", "step alone ms", "off by")
    ]
    for text in sorted(Path(sys.argv[1]).glob("*.txt")):
        manifest = text.with_suffix("") / "manifest.json"
        if not manifest.is_file():
            rows.append((text.stem, "-", "no run", "", "", ""))
            continue
        clean = next(p["result"] for p in json.loads(manifest.read_text())["passes"])
        own = [float(v) for v in OWN_TIMER.findall(text.read_text())]
        own = own[1 + len(own) // 10 :]
        own_ms = statistics.fmean(own) if own else None
        cells = [text.stem, "-" if own_ms is None else f"{own_ms:.4f}"]
        for name in ("step to step", "step alone"):
            samples = (clean.get("phase_samples_ns") or {}).get(name)
            measured = statistics.fmean(samples) / 1e6 if samples else None
            cells.append("-" if measured is None else f"{measured:.4f}")
            off = measured / own_ms - 1 if measured and own_ms else None
            cells.append("" if off is None else f"{off:+.1%}")
        rows.append(tuple(cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


if __name__ == "__main__":
    main()
