"""What the Submit form starts with: a given run's job, what was set before, or the last sweep.

Streamlit forgets a form's values when another page is opened; they are kept for the session here.
"""

import math
from collections.abc import Sequence
from typing import Any

import streamlit as st

from app.ui import cached
from app.ui.format import ago
from app.ui.submit.form import field_key, gpu_of, gpu_options, shown_value
from app.ui.widgets import plain_markdown
from core.errors import UserError
from core.spec import JobSpec
from db import fetch, runs
from workloads.registry import load_workloads, parse_params
from workloads.spec import CUSTOM, WorkloadSpec

_WORKLOAD = "choice_workload"
_OF_ALL = ("gpus", "profilers", "repeats", "ncu_set", "keep_reports")
"""Keys of the widgets that every workload has."""
_KEPT, _FILLED, _NOTES = "submit_kept", "submit_filled", "submit_notes"


def restore(run_id: str) -> None:
    """Set the form before it is drawn; UserError when there is no run `run_id` (`?from=`).

    Without a run: as it was left, or the workload that was submitted last.
    """
    kept = st.session_state.setdefault(_KEPT, {})
    for key, value in kept.items():
        if key != _WORKLOAD or "workload" not in st.query_params:
            st.session_state.setdefault(key, value)
    if run_id and st.session_state.get("submit_from") != run_id:
        _fill_from_run(run_id)
    elif _WORKLOAD not in st.session_state and "workload" not in st.query_params:
        usable = [name for name, spec in load_workloads().items() if not spec.error]
        if last := cached.read(runs.last_sweep, tuple(usable)):
            st.session_state[_WORKLOAD] = last[0][0].workload


def recall(spec: WorkloadSpec) -> None:
    """Fill the form, when its workload is first chosen, as that workload was submitted last."""
    filled = st.session_state.setdefault(_FILLED, set())
    if spec.name in filled:
        return
    filled.add(spec.name)
    if any(st.session_state.get(field_key(spec, f)) for f in spec.fields):
        return
    if sweep := cached.read(runs.last_sweep, (spec.name,)):
        _fill(spec, *sweep)


def note(spec: WorkloadSpec) -> None:
    """Say where the form's values come from, with the way back to the defaults."""
    text = st.session_state.get(_NOTES, {}).get(spec.name)
    if not text:
        return
    bar = st.container(horizontal=True, vertical_alignment="center")
    bar.caption(plain_markdown(text), width="content")
    bar.button(
        "Start afresh", icon=":material/restart_alt:", type="tertiary", on_click=_clear, args=[spec]
    )


def keep() -> None:
    """Remember what the form holds, for when this page is opened again."""
    state = st.session_state
    keys = [k for k in state if str(k).startswith("field_") or k in (_WORKLOAD, *_OF_ALL)]
    state[_KEPT] = {k: state[k] for k in keys}


def _clear(spec: WorkloadSpec) -> None:
    """Empty the form: a field is set, since a browser keeps what a forgotten one had."""
    for key in _OF_ALL:
        st.session_state.pop(key, None)
        st.session_state[_KEPT].pop(key, None)
    for field in spec.fields:
        key = field_key(spec, field)
        st.session_state[_KEPT].pop(key, None)
        if st.session_state.get(key):
            st.session_state[key] = []
    st.session_state[_NOTES].pop(spec.name, None)


def _set_note(spec: WorkloadSpec, text: str) -> None:
    st.session_state.setdefault(_NOTES, {})[spec.name] = text


def _fill_from_run(run_id: str) -> None:
    run = cached.read(fetch.run_row, run_id)
    workloads = load_workloads()
    if run.workload not in workloads:
        raise UserError(f"run {run_id}: its program is not one of the workloads here")
    spec = workloads[str(run.workload)]
    text = f"The job of {run.name}: change the fields that should differ."
    if run.gpu_model in gpu_options():
        st.session_state["gpus"] = [run.gpu_model]
    else:
        st.session_state.pop("gpus", None)
        text += f" It ran on {run.gpu_model or 'an unknown GPU'}, for which no worker is registered"
        text += " here: choose another GPU, or start a worker there."
    st.session_state["submit_from"] = run_id
    st.session_state[_WORKLOAD] = spec.name
    st.session_state["profilers"] = list(run.profilers)
    st.session_state["repeats"] = run.repeats
    for field in spec.fields:
        if field.name in run.params:
            value = shown_value(field, run.params[field.name])
            st.session_state[field_key(spec, field)] = [value]
    st.session_state.setdefault(_FILLED, set()).add(spec.name)
    _set_note(spec, text)


def _fill(spec: WorkloadSpec, jobs: Sequence[JobSpec], created_at: str) -> None:
    """Choose the values of a sweep; for jobs that are not a full product, the first job's."""
    values = _chosen(spec, jobs)
    gpus = list(dict.fromkeys(gpu_of(job) for job in jobs))
    if math.prod(map(len, values.values())) * len(gpus) != len(jobs):
        jobs = jobs[:1]
        values, gpus = _chosen(spec, jobs), gpus[:1]
    for field in spec.fields:
        if field.name in values:
            st.session_state[field_key(spec, field)] = values[field.name]
    if "gpus" not in st.session_state and set(gpus) <= set(gpu_options()):
        st.session_state["gpus"] = gpus
    first = jobs[0]
    for key in ("repeats", "ncu_set", "keep_reports"):
        st.session_state.setdefault(key, getattr(first, key))
    st.session_state.setdefault("profilers", list(first.profilers))
    _set_note(spec, f"Filled in as it was last submitted, {ago(created_at)}.")


def _chosen(spec: WorkloadSpec, jobs: Sequence[JobSpec]) -> dict[str, list[str]]:
    """Return the values of each field that was not left at its preset's or its default."""
    fields = {f.name: f for f in spec.fields}
    presets = {str(j.params.get("preset")) for j in jobs} - {CUSTOM}
    untouched = [_untouched(spec, job) for job in jobs]
    chosen: dict[str, list[str]] = {}
    for name, field in fields.items():
        if name == "preset":
            continue
        values = [job.params.get(name, field.default) for job in jobs]
        if any(v != u.get(name) for v, u in zip(values, untouched, strict=True)):
            chosen[name] = list(dict.fromkeys(shown_value(field, v) for v in values))
    default = {str(parse_params(spec.name, {}, gpu_is_cpu=j.gpu == "cpu")["preset"]) for j in jobs}
    if "preset" in fields and len(presets) == 1 and presets != default:
        chosen["preset"] = sorted(presets)
    return chosen


def _untouched(spec: WorkloadSpec, job: JobSpec) -> dict[str, Any]:
    preset = job.params.get("preset", CUSTOM)
    given = {} if preset in (CUSTOM, "") else {"preset": preset}
    return dict(parse_params(spec.name, given, gpu_is_cpu=job.gpu == "cpu"))
