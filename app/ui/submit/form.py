"""The form of a sweep: every field of a workload takes several values, and their product runs.

The form of an own program asks for its command line instead.
"""

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.submit import allowed_commands
from app.ui import cached, data
from app.ui.widgets import linked_select, plain_markdown
from core.errors import UserError
from core.numbers import decimal, listed_texts
from core.program_settings import PATTERNS, parse_settings, settings_text
from core.spec import DEFAULT_NCU_SET, NCU_SETS, JobSpec
from core.states import PROFILER_PASSES
from db.devices import devices, resolve_device
from workloads.allowed import COMMANDS
from workloads.registry import load_workloads, parse_params
from workloads.spec import ParamField, WorkloadSpec

CPU = "cpu"
_FIRST = ("decode", "prefill", "generate", "transformer", "attention", "gemm")
"""Order of the workloads offered; the rest follows by name."""
_SUGGESTED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PASS_HELP = {
    "nsys": "kernels, phases, transfers and idle time (CUDA)",
    "ncu": "hardware counters of selected kernels (CUDA, needs permission)",
    "memory": "allocator history and live allocations at the peak",
    "trace": "PyTorch profiler; the only kernel view on a CPU",
}
_CPU_PASSES = ("memory", "trace")
_REPEATS = 3
"""Processes of the clean pass that the form starts with."""


def field_key(spec: WorkloadSpec, field: ParamField) -> str:
    """Return the key of a field's widget."""
    return f"field_{spec.name}_{field.name}"


def choose_workload() -> WorkloadSpec:
    """Draw the choice of workload; a broken one is listed with its error and cannot be chosen."""
    known = load_workloads()
    usable = {n: w for n, w in known.items() if not w.error}
    if not usable:
        raise UserError("workloads: none can be loaded; see the server's log")
    name = linked_select(
        st,
        "Workload",
        sorted(usable, key=lambda n: (_FIRST.index(n) if n in _FIRST else len(_FIRST), n)),
        param="workload",
        format_func=lambda n: f"{usable[n].title} ({n})",
    )
    st.caption(plain_markdown(usable[name].about))
    for broken in (w for w in known.values() if w.error):
        st.warning(plain_markdown(f"{broken.name}: {broken.error}"), icon=":material/warning:")
    return usable[name]


def gpu_options() -> list[str]:
    """Return the GPU models that workers registered, those online first, and `cpu`.

    Where a model has several GPUs each of them follows it, as `MODEL@HOST:INDEX`.
    """
    known = sorted(cached.read(devices), key=lambda d: not d.is_online)
    models = list(dict.fromkeys([*(d.model for d in known), CPU]))
    named = {m: list(dict.fromkeys(d.name for d in known if d.model == m)) for m in models}
    return [o for m in models for o in (m, *(named[m] if len(named[m]) > 1 else ()))]


def model_of(gpu: str) -> str:
    """Return the model of a chosen GPU: a model, or `MODEL@HOST:INDEX`."""
    return gpu.partition("@")[0]


def device_of(gpu: str) -> str | None:
    """Return the id of a chosen physical GPU; None when any of its model will do."""
    return resolve_device(cached.read(devices), gpu).id if "@" in gpu else None


def gpu_of(job: JobSpec) -> str:
    """Return where a job was sent, as `gpu_options` offers it."""
    names = {d.id: d.name for d in cached.read(devices)}
    return names.get(job.device or "", job.gpu)


def choose_gpus() -> list[str]:
    """Draw the choice of GPUs; each chosen one gets the whole sweep."""
    options = gpu_options()
    st.session_state.setdefault("gpus", options[:1])
    online = {name for d in cached.read(devices) if d.is_online for name in (d.model, d.name)}
    chosen = st.multiselect(
        "GPUs",
        options,
        key="gpus",
        filter_mode="contains",
        select_all=False,
        help="One job per GPU and combination of values. To compare runs, "
        "choose one GPU by its name if there are several of a model: cards "
        "differ.",
    )
    if not chosen:
        raise UserError("GPUs: choose at least one")
    # Said beside, not in the options: a label that changes would drop the choice.
    if away := [m for m in chosen if m not in online]:
        st.caption(plain_markdown(f"No worker is online for {', '.join(away)}: its jobs wait."))
    return list(chosen)


def fields(spec: WorkloadSpec, gpus: list[str]) -> dict[str, list[Any]]:
    """Draw every field; return the values of those that were set."""
    basic = [f for f in spec.fields if f.basic]
    rest = [f for f in spec.fields if not f.basic]
    base = _defaults(spec, gpus)
    values = _grid(spec, basic, base)
    with st.expander("More fields", icon=":material/tune:"):
        values |= _grid(spec, rest, base)
    return values


def fields_named(spec: WorkloadSpec, names: Sequence[str], gpus: list[str]) -> dict[str, list[Any]]:
    """Draw the fields of these names; return the values of those that were set."""
    shown = [f for f in spec.fields if f.name in names]
    return _grid(spec, shown, _defaults(spec, gpus))


def _defaults(spec: WorkloadSpec, gpus: list[str]) -> dict[str, Any]:
    """Return what an untouched field will be; a dimension is left out when presets differ in it."""
    key = f"field_{spec.name}_preset"
    chosen = [{"preset": p} for p in st.session_state.get(key) or []] or [{}]
    defaults = [
        parse_params(spec.name, values, gpu_is_cpu=is_cpu)
        for values in chosen
        for is_cpu in {model_of(g) == CPU for g in gpus}
    ]
    return {k: v for k, v in defaults[0].items() if all(f[k] == v for f in defaults)}


def _grid(
    spec: WorkloadSpec, shown: list[ParamField], base: dict[str, Any]
) -> dict[str, list[Any]]:
    values = {}
    with st.grid("auto", min_column_width=230, gap="small"):
        for field in shown:
            if chosen := _draw(spec, field, base):
                values[field.name] = chosen
    return values


def _draw(spec: WorkloadSpec, field: ParamField, base: dict[str, Any]) -> list[Any]:
    key = field_key(spec, field)
    present = st.session_state.get(key) or []
    is_number = field.kind in ("int", "float") and not field.choices
    unit = f", {field.unit}" if field.unit and not field.name.endswith(field.unit) else ""
    limits = _limits(field)
    return st.multiselect(
        f"{field.name}{unit}",
        list(dict.fromkeys([*present, *options_of(field)])),
        key=key,
        format_func=_picked if is_number else str,
        filter_mode="prefix" if is_number else "contains",
        select_all=False,
        placeholder=shown_value(field, base[field.name]) if field.name in base else "the preset's",
        help=plain_markdown(f"{field.doc}{limits}"),
        accept_new_options=is_number,
    )


def _picked(value: Any) -> str:
    """Return the label of an offered number: it begins with a blank, as nothing that is typed does.

    Enter takes the first offered label that begins with what was typed: with 12 it would take 128.
    So that a typed number is that number, none of them may.
    """
    return f" {value}"


def options_of(field: ParamField) -> list[str]:
    """Return what the form offers for a field: its choices, on and off, or round numbers."""
    if field.choices:
        return [shown_value(field, c) for c in field.choices if c != "custom"]
    if field.kind == "bool":
        return ["on", "off"]
    if field.kind == "int":
        low, high = field.minimum or 0, field.maximum or float("inf")
        numbers = sorted({int(field.default), *(n for n in _SUGGESTED if low <= n <= high)})
        return [str(n) for n in numbers]
    return [shown_value(field, field.default)]


def shown_value(field: ParamField, value: Any) -> str:
    """Return a value as the form offers it."""
    if field.kind == "bool":
        return "on" if value else "off"
    return str(value)


def _limits(field: ParamField) -> str:
    if field.minimum is None and field.maximum is None:
        return ""
    low = decimal(field.minimum, 6) if field.minimum is not None else ""
    high = decimal(field.maximum, 6) if field.maximum is not None else ""
    return f" ({low} to {high})" if high else f" (at least {low})"


def passes(gpus: list[str]) -> tuple[tuple[str, ...], int]:
    """Draw the profiler passes and the number of processes of the clean pass."""
    only_cpu = all(model_of(g) == CPU for g in gpus)
    offered = [str(p) for p in PROFILER_PASSES if not only_cpu or str(p) in _CPU_PASSES]
    kept = [p for p in st.session_state.get("profilers", []) if p in offered]
    if "profilers" not in st.session_state:
        kept = ["trace"] if only_cpu else ["nsys"]
    st.session_state["profilers"] = kept
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    chosen = left.pills(
        "Profiler passes after the clean pass",
        offered,
        selection_mode="multi",
        key="profilers",
        help="  \n".join(f"{p}: {_PASS_HELP[p]}" for p in offered),
    )
    st.session_state.setdefault("repeats", _REPEATS)  # set: a browser keeps what it had otherwise
    repeats = right.number_input(
        "Processes",
        min_value=1,
        max_value=50,
        value=None,
        key="repeats",
        help="The clean pass runs in this many processes: noise between "
        "processes is larger than within one, and a verdict needs several.",
    )
    order = [str(p) for p in PROFILER_PASSES]
    return tuple(sorted(chosen or [], key=order.index)), int(repeats or 1)


def tools(profilers: tuple[str, ...]) -> dict[str, Any]:
    """Draw what the chosen profilers shall do otherwise; only for those that are chosen."""
    chosen: dict[str, Any] = {}
    if not {"nsys", "ncu"} & set(profilers):
        return chosen
    left, right = st.columns(2, vertical_alignment="bottom")
    if "ncu" in profilers:
        st.session_state.setdefault("ncu_set", DEFAULT_NCU_SET)
        chosen["ncu_set"] = left.selectbox(
            "Counters",
            NCU_SETS,
            key="ncu_set",
            help="basic: utilisation of the GPU. roofline: also FLOPs, bytes "
            "and memory. full: also warp stall reasons, cache hit rates "
            "and per-instruction samples; twice as many replays.",
        )
    st.session_state.setdefault("keep_reports", False)
    chosen["keep_reports"] = right.checkbox(
        "Keep the tools' own reports",
        key="keep_reports",
        help="Nsight Systems and Nsight Compute can open them. Unlike all other "
        "stored data they contain the program's environment variables, "
        "paths and host name, and anyone who can open the run can download "
        "them. The host's operator may forbid it (WARPBOARD_KEEP_REPORTS).",
    )
    return chosen


def memory_of(gpu: str) -> float | None:
    """Return a registered GPU's memory in bytes; None when it is not known."""
    frame = data.list_gpus()
    model = model_of(gpu)
    sizes = pd.to_numeric(frame.loc[frame["model"] == model, "memory_bytes"], errors="coerce")
    return float(sizes.min()) if sizes.notna().any() else None


OWN = "command"
_TEXTS = ("argv", "name", "cwd", "ranges", "metrics", "settings")
_REST = ("iterations", "warmup", "latency", "timeout_s")


def own_program_fields(spec: WorkloadSpec, gpus: list[str]) -> dict[str, list[Any]]:
    """Draw the fields of an own program; return the values of those that were set.

    UserError for a command that cannot be read, and where no host of a chosen GPU allows any.
    """
    _say_allowed(gpus)
    command = _text(
        spec, "argv", "Command", _joined, _split_words,
        placeholder="/usr/bin/python3 /srv/jobs/train.py --epochs 1",
        help="A program that the host's operator allows, and its arguments, quoted as in a shell. "
        "There is no shell: nothing is expanded, piped or redirected.",
    )  # fmt: skip
    with st.grid("auto", min_column_width=230, gap="small"):
        name = _text(spec, "name", "Name", help="Empty: the program's file name.")
        cwd = _text(spec, "cwd", "Folder it runs in",
                    help="In the program's folder or a folder that the operator "
"allows. Empty: a scratch folder for the run.")  # fmt: skip
        ranges = _text(
            spec, "ranges", "NVTX ranges to keep", help="Separated by commas. Empty: all."
        )
        metrics = _text(
            spec, "metrics", "Number that it prints", _first_of, _listed,
            placeholder="tok/s: ([0-9.]+)",
            help="A regular expression with one group, the number. It is stored "
"as a metric of the run and compared like latency. "
"`(?P<higher>...)` or `(?P<lower>...)` says which is better.",
        )  # fmt: skip
        settings = _text(
            spec, "settings", "Settings of its environment", stored=_checked_settings,
            placeholder="TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
            help=f"NAME=VALUE, a blank between. May be set: {', '.join(PATTERNS)}.",
        )  # fmt: skip
    texts = dict(zip(_TEXTS, (command, name, cwd, ranges, metrics, settings), strict=True))
    if not command:
        raise UserError("command: write the program and its arguments")
    return {k: v for k, v in texts.items() if v} | fields_named(spec, _REST, gpus)


def _say_allowed(gpus: list[str]) -> None:
    """Show which own programs each chosen GPU's host allows; UserError where it allows none."""
    for gpu in gpus:
        allowed = cached.read(allowed_commands, model_of(gpu), device_of(gpu))
        if allowed:
            st.caption(plain_markdown(f"{gpu} allows: {', '.join(allowed)}"))
        elif allowed is not None:
            raise UserError(
                f"{gpu}: running your own programs is disabled on its host; to "
                f"enable it, its operator sets {COMMANDS} there and restarts the "
                "worker"
            )


def _text(
    spec: WorkloadSpec,
    name: str,
    label: str,
    shown: Callable[[str], str] = str,
    stored: Callable[[str], str] = str,
    **options: Any,
) -> list[str]:
    """Draw one text; its value lies where the form's other fields keep theirs."""
    field = next(f for f in spec.fields if f.name == name)
    key, place = f"own_{name}", field_key(spec, field)
    kept = next(iter(st.session_state.get(place) or []), "")
    if st.session_state.get(f"{key}_kept") != kept:  # another run's, or started afresh
        st.session_state[key] = shown(kept) if kept else ""
    typed = st.text_input(label, key=key, **options).strip()
    value = stored(typed) if typed else ""
    st.session_state[f"{key}_kept"] = value
    st.session_state[place] = [value] if value else []
    return [value] if value else []


def _joined(argv: str) -> str:
    return shlex.join(listed_texts(argv))


def _split_words(command: str) -> str:
    try:
        return json.dumps(shlex.split(command))
    except ValueError as error:
        raise UserError(f"command: {error}") from error


def _checked_settings(text: str) -> str:
    return settings_text(parse_settings(text))


def _first_of(patterns: str) -> str:
    return next(iter(listed_texts(patterns)), "")


def _listed(pattern: str) -> str:
    return json.dumps([pattern])
