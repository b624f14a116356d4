"""A job as the words of the command line that would submit it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from core.numbers import listed_texts
from core.program_settings import parse_settings, with_settings


def submit_command(job: Mapping[str, Any], verb: str = "submit") -> str:
    """Return `./warpboard submit ...` for a job; of a parameter that is a list, for each value."""
    words = ["./warpboard", verb, str(job["workload"])]
    for name, value in dict(job.get("params") or {}).items():
        options = value if isinstance(value, list | tuple) else (value,)
        words += ["--set", f"{name}={','.join(_option(name, str(o)) for o in options)}"]
    words += ["--gpu", str(job["gpu"])] if job.get("gpu") else []
    words += ["--profilers", ",".join(job["profilers"])] if job.get("profilers") else []
    words += ["--repeats", str(job["repeats"])] if job.get("repeats") else []
    words += ["--ncu-set", str(job["ncu_set"])] if job.get("ncu_set") else []
    words += ["--keep-reports"] if job.get("keep_reports") else []
    return shlex.join(words)


def _option(name: str, value: str) -> str:
    """Return a parameter's value as one: a comma would begin another job."""
    return json.dumps(parse_settings(value)) if name == "settings" and "," in value else value


def profile_command(
    params: Mapping[str, Any],
    profilers: Sequence[str],
    repeats: int,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the `profile` command that measures an own program as such a job does.

    `environment`: variables that are set for it beside the job's own settings.
    """
    words = ["./warpboard", "profile"]
    words += ["--passes", ",".join(("clean", *profilers))] if profilers else []
    words += ["--repeats", str(repeats)] if repeats != 1 else []
    for option, name in (("--steps", "iterations"), ("--skip", "warmup")):
        words += [option, str(params[name])] if params.get(name) else []
    words += ["--latency", "alone"] if params.get("latency") == "step alone" else []
    for pattern in listed_texts(params.get("metrics")):
        words += ["--metric", pattern]
    wanted = parse_settings(with_settings(str(params.get("settings") or ""), environment or {}))
    settings = [f"{name}={shlex.quote(value)}" for name, value in wanted.items()]
    command = shlex.join([*words, "--", *listed_texts(params.get("argv"))])
    return " ".join((*settings, command))
