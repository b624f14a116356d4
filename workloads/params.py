"""Turn what a user typed into the full, checked parameters of a workload."""

import dataclasses
import difflib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from core.errors import UserError
from workloads.spec import CUSTOM, TINY, CommonParams, ParamField, ParamValue, WorkloadSpec

_TRUE = {"true", "on", "yes", "1"}
_FALSE = {"false", "off", "no", "0"}


def parse_values(
    spec: WorkloadSpec, values: Mapping[str, Any], *, gpu_is_cpu: bool = False
) -> dict[str, ParamValue]:
    """Return every field's value: the preset's dimensions, then `values` over them.

    Without `preset` the workload's default one is used, on a CPU `tiny`. `preset` in the answer
    names the preset that has these dimensions, or `custom`, so equal work has equal parameters and
    parsing the answer again changes nothing. Raises UserError that names the field, the value and
    what is allowed.
    """
    if spec.error:
        raise UserError(f"workload {spec.name}: {spec.error}")
    fields = {f.name: f for f in spec.fields}
    for name in values:
        if name not in fields:
            raise UserError(
                f"{spec.name}: no field {name!r}{did_you_mean(name, fields)}; "
                f"fields are {', '.join(fields)}"
            )
    given = {name: _convert(spec, fields[name], value) for name, value in values.items()}
    preset = str(given.get("preset", TINY if gpu_is_cpu else fields["preset"].default))
    merged: dict[str, Any] = {f.name: f.default for f in fields.values()}
    merged |= spec.all_presets.get(preset, {}) | given
    merged["preset"] = _name_of(spec, merged, preset)
    params = spec.params(**merged)
    return dataclasses.asdict(params)


def _name_of(spec: WorkloadSpec, values: Mapping[str, Any], wanted: str) -> str:
    presets = spec.all_presets
    for name in (wanted, *presets):
        dimensions = presets.get(name, {})
        if dimensions and all(values[key] == value for key, value in dimensions.items()):
            return name
    return CUSTOM


def load_params(spec: WorkloadSpec, values: Mapping[str, Any]) -> CommonParams:
    """Return the checked Params record; UserError as `parse_values`."""
    fields: dict[str, Any] = {**parse_values(spec, values)}
    return spec.params(**fields)


def _convert(spec: WorkloadSpec, f: ParamField, value: Any) -> ParamValue:
    where = f"{spec.name}: {f.name}={_shown(value)}"
    converted = _CONVERTERS[f.kind](value)
    if converted is None:
        raise UserError(f"{where} is not {_KINDS[f.kind]}")
    if f.choices and converted not in f.choices:
        hint = did_you_mean(str(converted), [str(c) for c in f.choices])
        raise UserError(f"{where} is not one of {', '.join(map(str, f.choices))}{hint}")
    low, high = f.minimum, f.maximum
    if isinstance(converted, int | float) and not isinstance(converted, bool):
        if low is not None and converted < low:
            raise UserError(f"{where} is less than {low:g}{_unit(f)}{_upper(high)}")
        if high is not None and converted > high:
            raise UserError(f"{where} is more than {high:g}{_unit(f)}")
    return converted


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _unit(f: ParamField) -> str:
    return f" {f.unit}" if f.unit else ""


def _upper(high: float | None) -> str:
    return f" (allowed up to {high:g})" if high is not None else ""


def _to_int(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value) if isinstance(value, float) else int(str(value).strip())
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and number == int(number) else None


def _to_float(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _to_bool(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _to_str(value: Any) -> str | None:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return json.dumps(list(value))
    return None if value is None else str(value).strip()


_CONVERTERS = {"int": _to_int, "float": _to_float, "bool": _to_bool, "str": _to_str}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "on or off",
    "str": "a text",
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}" if close else ""
