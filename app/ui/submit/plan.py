"""From the form's values to jobs: which ones, what they need, and the commands that do the same."""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd
import streamlit as st

from app.job_text import submit_command
from app.ui import data, links
from app.ui.format import UNKNOWN, bytes_
from app.ui.shape import varying_params
from app.ui.submit.form import CPU, device_of, memory_of, model_of
from app.ui.tables import show_table
from app.ui.widgets import said_plainly
from core.errors import UserError
from core.spec import MAX_SWEEP_JOBS, JobSpec, expand_sweep
from workloads.registry import estimate_memory_bytes, parse_params
from workloads.spec import WorkloadSpec

_USABLE_FRAC = 0.92
"""Share of a device's memory that a workload gets: context and allocator take the rest."""
_SHOWN_CELLS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination on one GPU."""

    gpu: str
    params: dict[str, Any]
    problem: str
    "Why it cannot run; empty when it can."
    needs_bytes: int | None
    has_bytes: float | None

    @property
    def likely_oom(self) -> bool:
        known = self.needs_bytes is not None and self.has_bytes is not None
        return known and self.needs_bytes > _USABLE_FRAC * self.has_bytes  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the form asks for."""

    workload: WorkloadSpec
    values: dict[str, list[Any]]
    gpus: list[str]
    profilers: tuple[str, ...]
    repeats: int
    tools: dict[str, Any]
    cells: tuple[Cell, ...]

    @property
    def jobs(self) -> list[JobSpec]:
        devices = {gpu: device_of(gpu) for gpu in self.gpus}
        return [
            JobSpec(
                workload=self.workload.name,
                params=cell.params,
                profilers=self.profilers,
                repeats=self.repeats,
                gpu=model_of(cell.gpu),
                device=devices[cell.gpu],
                **self.tools,
            )
            for cell in self.cells
            if not cell.problem
        ]


def make_plan(
    workload: WorkloadSpec,
    values: dict[str, list[Any]],
    gpus: list[str],
    profilers: tuple[str, ...],
    repeats: int,
    tools: dict[str, Any],
) -> Plan:
    """Expand the sweep for every GPU; UserError past the limit of jobs."""
    combos = expand_sweep({name: tuple(options) for name, options in values.items()})
    if len(combos) * len(gpus) > MAX_SWEEP_JOBS:
        raise UserError(
            f"sweep: {len(combos) * len(gpus)} jobs are more than {MAX_SWEEP_JOBS}; narrow a field"
        )
    sizes = {gpu: None if model_of(gpu) == CPU else memory_of(gpu) for gpu in gpus}
    cells = [_cell(workload, combo, gpu, sizes[gpu]) for gpu in gpus for combo in combos]
    return Plan(
        workload=workload,
        values=values,
        gpus=gpus,
        profilers=profilers,
        repeats=repeats,
        tools=tools,
        cells=tuple(cells),
    )


def _cell(spec: WorkloadSpec, combo: dict[str, Any], gpu: str, has_bytes: float | None) -> Cell:
    try:
        params = parse_params(spec.name, combo, gpu_is_cpu=model_of(gpu) == CPU)
    except UserError as exc:
        return Cell(
            gpu=gpu, params=dict(combo), problem=str(exc), needs_bytes=None, has_bytes=has_bytes
        )
    needs = estimate_memory_bytes(spec.name, params)
    if cap_gib := float(params.get("memory_cap_gib") or 0):
        has_bytes = min(has_bytes or math.inf, cap_gib * 2**30)
    return Cell(gpu=gpu, params=params, problem="", needs_bytes=needs, has_bytes=has_bytes)


def draw(plan: Plan) -> None:
    """Draw the count, the cells with their memory, the button, and the commands."""
    jobs = plan.jobs
    refused = len(plan.cells) - len(jobs)
    oom = sum(c.likely_oom for c in plan.cells)
    parts = [f"{len(jobs)} job{'s' if len(jobs) != 1 else ''}"]
    parts += [f"{oom} likely out of memory"] if oom else []
    parts += [f"{refused} not possible"] if refused else []
    duration = _expected(plan)
    parts += [duration] if duration else []
    st.subheader(" \u00b7 ".join(parts), anchor=False)
    _cells(plan)
    bar = st.container(horizontal=True, vertical_alignment="bottom")
    name = bar.text_input("Name of the sweep", key="sweep_name", placeholder="optional", width=260)
    label = f"Submit {len(jobs)} job{'s' if len(jobs) != 1 else ''}"
    if bar.button(label, type="primary", icon=":material/send:", disabled=not jobs):
        with said_plainly():
            data.submit(jobs, name=name.strip() or None)
        st.switch_page(links.QUEUE)
    st.markdown("**The same from a shell**")
    st.code("\n".join(commands(plan)), language="bash", wrap_lines=True)


def _cells(plan: Plan) -> None:
    varying = varying_params([c.params for c in plan.cells])
    if len(plan.values.get("preset", ())) < 2:
        # A cell whose sizes happen to be another preset's would seem to be asked for as that.
        varying = [name for name in varying if name != "preset"]
    rows = [
        {
            "GPU": c.gpu,
            **{k: str(c.params.get(k, "")) for k in varying},
            "memory needed": bytes_(c.needs_bytes),
            "of what there is": _share(c),
            "note": c.problem or ("likely OOM" if c.likely_oom else ""),
        }
        for c in plan.cells[:_SHOWN_CELLS]
    ]
    show_table(
        pd.DataFrame(rows),
        most_px=380,
        alt="Jobs of the sweep with their memory estimate",
    )
    more = len(plan.cells) - _SHOWN_CELLS
    note = "An estimate from the sizes; running out of memory counts as a result, not a failure."
    st.caption(f"{more} more not shown. {note}" if more > 0 else note)


def _share(cell: Cell) -> str:
    if cell.needs_bytes is None or not cell.has_bytes:
        return UNKNOWN
    return f"{100 * cell.needs_bytes / cell.has_bytes:.0f} %"


def _expected(plan: Plan) -> str:
    """Return how long past runs of this workload on these GPUs took, times the jobs."""
    total = 0.0
    for gpu in plan.gpus:
        past, _ = data.list_runs(
            f'workload:{plan.workload.name} gpu:"{model_of(gpu)}" status:done source:submitted',
            limit=20,
        )
        seconds = [
            s
            for s in (
                _seconds(a, b) for a, b in zip(past["started_at"], past["finished_at"], strict=True)
            )
            if s is not None
        ]
        if not seconds:
            return ""
        total += sorted(seconds)[len(seconds) // 2] * sum(
            c.gpu == gpu and not c.problem for c in plan.cells
        )
    return f"about {total / 60:.0f} min" if total >= 90 else f"about {total:.0f} s"


def _seconds(start: str | None, end: str | None) -> float | None:
    if not start or not end:
        return None
    first, last = (datetime.fromisoformat(t.replace("Z", "+00:00")) for t in (start, end))
    return max(0.0, (last - first).total_seconds())


def commands(plan: Plan) -> list[str]:
    """Return one `submit` command a GPU that makes the same jobs."""
    job = {
        "workload": plan.workload.name,
        "params": plan.values,
        "profilers": plan.profilers,
        "repeats": plan.repeats,
        **plan.tools,
    }
    return [submit_command({**job, "gpu": gpu}) for gpu in plan.gpus]
