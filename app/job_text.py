"""A job as the words of the command line that would submit it."""

import shlex
from collections.abc import Mapping
from typing import Any


def submit_command(job: Mapping[str, Any]) -> str:
    """Return `./warpboard submit ...` for a job: workload, params, gpu, profilers, repeats."""
    words = ["./warpboard", "submit", str(job["workload"])]
    for name, value in dict(job.get("params") or {}).items():
        words += ["--set", f"{name}={value}"]
    words += ["--gpu", str(job["gpu"])] if job.get("gpu") else []
    words += ["--profilers", ",".join(job["profilers"])] if job.get("profilers") else []
    words += ["--repeats", str(job["repeats"])] if job.get("repeats") else []
    words += ["--ncu-set", str(job["ncu_set"])] if job.get("ncu_set") else []
    words += ["--keep-reports"] if job.get("keep_reports") else []
    return shlex.join(words)
