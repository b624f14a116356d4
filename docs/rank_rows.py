"""The table of results.md about jobs on several GPUs whose captures are not among the examples."""

import json
from typing import Any

from docs.measured import RESULTS, number, table

FILE = RESULTS / "ranks-h200.json"
"""What `python -m bench.ranks.figures` left."""


def rank_rows() -> str:
    """Return, by job and pass, what communication costs a step."""
    head = (
        *("job", "step, ms", "pass", "exposed by rank, % of the span", "behind compute, %"),
        *("waiting for the other rank, %", "transfer, ms a step", "bus bandwidth of it, GB/s"),
    )
    jobs = json.loads(FILE.read_text(encoding="utf-8"))["jobs"]
    rows = [
        _row(job, name, figures)
        for job in sorted(jobs, key=_order)
        for name, figures in job["passes"].items()
    ]
    return table(head, rows)


def _order(job: dict[str, Any]) -> tuple[int, str]:
    return job["params"]["layers"], job["params"]["parallel"]


def _row(job: dict[str, Any], name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    ranks, collectives = figures["ranks"], figures["collectives"]
    communication = sum(rank["communication_ns"] for rank in ranks)
    exposed = sum(rank["exposed_ns"] for rank in ranks)
    waiting = sum(kind["wait_ns"] for kind in collectives)
    transfer = sum(kind["transfer_ns"] for kind in collectives)
    sized = [kind for kind in collectives if "transfer_bus_gbps" in kind]
    most: dict[str, Any] = max(sized, key=lambda kind: kind["num_calls"], default={})
    return (
        job["name"].removesuffix("-profiled-2").replace("-", " "),
        number(job["step_ms"], 1),
        name,
        ", ".join(number(rank["exposed_frac"], 0, 100) for rank in ranks),
        number(1 - exposed / communication, 0, 100),
        number(waiting / communication, 0, 100),
        number(transfer / len(ranks) / figures["num_steps"], 2, 1e-6),
        number(most.get("transfer_bus_gbps"), 0),
    )
