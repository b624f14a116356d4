"""Settings of a program's environment that experiments may change: a closed list, with values.

A job carries them as one text, `NAME=VALUE NAME=VALUE`, sorted; `none` without any. What is not on
the list never reaches a program by a job, so no job can set what a program loads or where it looks.
"""

import json
import re
from collections.abc import Mapping

from core.errors import UserError

NO_SETTINGS = "none"
_ALLOCATOR_OPTION = (
    r"(?:expandable_segments:(?:True|False)|max_split_size_mb:\d{1,7}"
    r"|garbage_collection_threshold:0?\.\d{1,4}|roundup_power2_divisions:\d{1,3}"
    r"|backend:(?:native|cudaMallocAsync))"
)
_ALLOCATOR = f"{_ALLOCATOR_OPTION}(?:,{_ALLOCATOR_OPTION}){{0,4}}"
_EXAMPLES = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    "NVIDIA_TF32_OVERRIDE": "1",
    "CUDA_MODULE_LOADING": "EAGER",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "OMP_NUM_THREADS": "4",
}
PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.ASCII)
    for name, pattern in {
        "PYTORCH_CUDA_ALLOC_CONF": _ALLOCATOR,
        "PYTORCH_ALLOC_CONF": _ALLOCATOR,
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "[01]",
        "NVIDIA_TF32_OVERRIDE": "[01]",
        "CUDA_MODULE_LOADING": "LAZY|EAGER",
        "CUBLAS_WORKSPACE_CONFIG": r"(?::\d{1,7}:\d{1,4}){1,4}",
        "OMP_NUM_THREADS": r"[1-9]\d{0,2}",
    }.items()
}
"""The variables that may be set, and what the whole value must match."""


def checked_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings, sorted; UserError for a name or a value that is not on the list."""
    for name, value in settings.items():
        if name not in PATTERNS:
            raise UserError(
                f"settings: {str(name)[:60]!r} cannot be set; allowed names: {', '.join(PATTERNS)}"
            )
        if not isinstance(value, str) or not PATTERNS[name].fullmatch(value):
            raise UserError(
                f"settings: {name}={str(value)[:60]!r} is not an allowed value; "
                f"write one such as {name}={_EXAMPLES[name]}"
            )
    return dict(sorted(settings.items()))


def parse_settings(text: str) -> dict[str, str]:
    """Return the settings of a text, `NAME=VALUE NAME=VALUE` or a JSON object of texts."""
    text = text.strip()
    if text in ("", NO_SETTINGS):
        return {}
    if text.startswith("{"):
        try:
            return checked_settings(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise UserError(f"settings: {text[:60]!r} is not JSON: {error}") from error
    settings: dict[str, str] = {}
    for word in text.split():
        name, mark, value = word.partition("=")
        if not mark:
            raise UserError(f"settings: {word[:60]!r} is not NAME=VALUE")
        if name in settings:
            raise UserError(f"settings: {name[:60]!r} is given twice")
        settings[name] = value
    return checked_settings(settings)


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as a job carries them; UserError as `checked_settings`."""
    checked = checked_settings(settings)
    return " ".join(f"{name}={value}" for name, value in checked.items()) or NO_SETTINGS


def settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment sets of the list; values that may not be set are left out."""
    return {
        name: environment[name]
        for name, pattern in PATTERNS.items()
        if pattern.fullmatch(environment.get(name, ""))
    }


def with_settings(now: str, more: Mapping[str, str]) -> str:
    """Return a job's settings with more; options of an allocator are added to those it has."""
    settings = parse_settings(now)
    for name, value in more.items():
        before = settings.get(name, "")
        if PATTERNS[name].pattern == _ALLOCATOR and before:
            value = _joined_options(before, value)
        settings[name] = value
    return settings_text(settings)


def _joined_options(before: str, more: str) -> str:
    options = dict(option.split(":") for option in f"{before},{more}".split(","))
    return ",".join(f"{name}:{value}" for name, value in options.items())
