"""Measure our Triton kernels on this GPU against the libraries: prints a table and one JSON line.

    python bench/kernels.py [--out FILE] [--section NAME]... [--only TEXT] [--budget SECONDS]

Every section runs in a process of its own, so that a kernel that does not compile, crashes or hangs
is a row of the table and not its end. Short kernels are timed by replaying a CUDA graph of many
calls; long ones by events, while the host is ahead. Errors are against float64 on the same inputs:
the whole output for products and routing, one head for attention.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.kernel_cases import SECTIONS, Row, keep_attention_cases  # noqa: E402


def run_section(name: str, only: str, budget_s: float) -> list[Row]:
    """Run one section in a child and return its rows; a crash or time-out is a row."""
    command = [sys.executable, __file__, "--child", name, "--only", only]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        text, _ = child.communicate(timeout=max(10.0, budget_s))
        failure = f"exit code {child.returncode}" if child.returncode else ""
    except subprocess.TimeoutExpired:
        child.kill()
        text, _ = child.communicate()
        failure = f"stopped after {budget_s:.0f} s"
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if failure:
        rows.append({"case": "", "variant": "", "error": failure})
    return [{"section": name} | row for row in rows]


def goals(rows: list[Row]) -> list[Row]:
    """Return each goal with the ratio reached: attention, gemm and regroup."""
    rows_of_goals = []
    for section, least in (("attention_forward", 1.0), ("attention_backward", 0.95)):
        timed = [r for r in rows if r["section"] == section and "ms" in r]
        for case in dict.fromkeys(r["case"] for r in timed if not r["case"].startswith("tiles")):
            of = {r["variant"]: r["ms"] for r in timed if r["case"] == case}
            libraries = [ms for name, ms in of.items() if name.startswith("sdpa")]
            if "triton" in of and libraries:
                reached = min(libraries) / of["triton"]
                rows_of_goals.append(
                    _goal(f"{section} {case}: speed of best SDPA", reached, least, True)
                )
    for row in rows:
        is_ours = row["section"] in ("gemm", "attention_decode") and row["variant"] == "triton"
        if is_ours and "of_copy" in row:
            name = f"{row['section']} {row['case']}: of copy bandwidth"
            rows_of_goals.append(_goal(name, row["of_copy"], 0.85, True))
    for key in ("ms", "graph_ms"):
        of = {r["variant"]: r[key] for r in rows if r["section"] == "moe" and key in r}
        if len(of) == 3:
            route, by_sort, by_count = of.values()
            if by_sort > route:
                reached = (by_count - route) / (by_sort - route)
                rows_of_goals.append(
                    _goal(f"moe ({key}): share of what sort adds", reached, 0.4, False)
                )
    return rows_of_goals


def _goal(name: str, reached: float, goal: float, is_least: bool) -> Row:
    met = reached >= goal if is_least else reached <= goal
    return {"goal": name, "reached": reached, "limit": goal, "met": met}


COLUMNS = ("ms", "graph_ms", "tflop_per_s", "gbytes_per_s", "of_copy", "max_abs_error", "rel_error")


def print_rows(rows: list[Row]) -> None:
    for row in rows:
        numbers = [f"{key}={row[key]:.4g}" for key in COLUMNS if key in row]
        note = f"FAILED {row['error']}" if "error" in row else "  ".join(numbers)
        print(f"{row['section']:19} {row['case']:22} {row['variant']:24} {note}", flush=True)


def main() -> int:
    """Run the sections and return 0 when no row failed, 1 otherwise, 3 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--section", action="append", choices=tuple(SECTIONS))
    parser.add_argument("--child", choices=tuple(SECTIONS), help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="text in the names of attention's cases")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    parser.add_argument("--budget", type=float, default=230.0, help="seconds for all sections")
    args = parser.parse_args()
    if args.child:
        keep_attention_cases(args.only)
        for row in SECTIONS[args.child]():
            print(json.dumps(row), flush=True)
        return 0
    import torch

    if not torch.cuda.is_available():
        print("bench/kernels.py needs a CUDA GPU; on a CPU the kernels are tested by pytest")
        return 3
    started = time.monotonic()
    rows: list[Row] = []
    for name in args.section or SECTIONS:
        new = run_section(name, args.only, args.budget - (time.monotonic() - started))
        print_rows(new)
        rows += new
    reached = goals(rows)
    for goal in reached:
        sign = "met" if goal["met"] else "NOT MET"
        print(f"goal {goal['goal']:60} {goal['reached']:.3f} (limit {goal['limit']}) {sign}")
    document = {
        "schema_version": 1,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": __import__("triton").__version__,
        "seconds": round(time.monotonic() - started, 1),
        "rows": rows,
        "goals": reached,
    }
    text = json.dumps(document)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
