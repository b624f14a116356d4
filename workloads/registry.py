"""Find the workloads: every module of this package that has a `WORKLOAD`. Never imports torch."""

import importlib
import pkgutil
import traceback
from collections.abc import Mapping
from functools import cache
from typing import Any

import workloads
from core.errors import UserError
from workloads.params import did_you_mean, load_params, parse_values
from workloads.spec import Cost, ParamValue, WorkloadSpec


@cache
def load_workloads() -> dict[str, WorkloadSpec]:
    """Return the workloads by name, sorted. A broken one is there with its `error` set."""
    registry: dict[str, WorkloadSpec] = {}
    for module in pkgutil.iter_modules(workloads.__path__):
        if module.ispkg or module.name.startswith("_"):
            continue
        spec = _load(module.name)
        if spec is not None:
            registry[module.name] = spec
    return dict(sorted(registry.items()))


def _load(stem: str) -> WorkloadSpec | None:
    try:
        module = importlib.import_module(f"workloads.{stem}")
    except Exception as exc:  # a broken file must not take the list down
        last = traceback.extract_tb(exc.__traceback__)[-1]
        return _broken(stem, f"{type(exc).__name__}: {exc} (line {last.lineno})")
    spec = getattr(module, "WORKLOAD", None)
    if spec is None:
        return None
    if not isinstance(spec, WorkloadSpec):
        return _broken(stem, f"WORKLOAD is a {type(spec).__name__}, not a WorkloadSpec")
    if spec.name != stem:
        return _broken(stem, f"WORKLOAD is named {spec.name!r}; it must be the file's name")
    return spec


def _broken(stem: str, error: str) -> WorkloadSpec:
    return WorkloadSpec(
        name=stem, title=stem, about="cannot be loaded", error=f"workloads/{stem}.py: {error}"
    )


def find_workload(name: str) -> WorkloadSpec:
    """Return one workload that can be used; UserError for an unknown or broken one."""
    known = load_workloads()
    if name not in known:
        raise UserError(
            f"workload: {name!r} is not known{did_you_mean(name, known)}; "
            f"workloads are {', '.join(known)}"
        )
    if known[name].error:
        raise UserError(f"workload {name}: {known[name].error}")
    return known[name]


def parse_params(
    workload: str, values: Mapping[str, Any], *, gpu_is_cpu: bool = False
) -> dict[str, ParamValue]:
    """Return all parameters in canonical form. See `workloads.params.parse_values`."""
    return parse_values(find_workload(workload), values, gpu_is_cpu=gpu_is_cpu)


def estimate_memory_bytes(workload: str, values: Mapping[str, Any]) -> int | None:
    """Return the device memory that a run needs, or None when that is unknown."""
    spec = find_workload(workload)
    if spec.estimate_memory_bytes is None:
        return None
    return spec.estimate_memory_bytes(load_params(spec, values))


def cost(workload: str, values: Mapping[str, Any]) -> Cost | None:
    """Return the work of one iteration, or None when the workload has no formula."""
    spec = find_workload(workload)
    return spec.cost(load_params(spec, values)) if spec.cost is not None else None
