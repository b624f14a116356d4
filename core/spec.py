"""The job spec: what to run, in canonical form, with the hashes that name it."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.program_settings import NO_SETTINGS
from core.states import PROFILER_PASSES, Pass

SCHEMA_VERSION = 1
ParamValue = str | int | float | bool | None
MAX_SWEEP_JOBS = 2000
MAX_REPEATS = 50
NCU_SETS = ("basic", "roofline", "full")
"""Speed of light and launches; with the roofline and memory; with warp states and source lines."""
DEFAULT_NCU_SET = "roofline"
PROGRAM_TIME = "program_time"
"""Metric of a user's own program: its whole process in the clean pass. Never a latency."""
LATER_PARAMS: Mapping[str, ParamValue] = {
    "gpus": 1,
    "profiled_ranks": "all",
    "straggler_rank": -1,
    "straggler_ms": 0.0,
    "parallel": "none",
    "scaling": "strong",
    "settings": NO_SETTINGS,
}
"""Parameters that workloads got later: at these values a run is what it was without them."""
NUMBERS = frozenset(
    {"batch", "calls", "context", "d_model", "experts", "factor", "ff", "gpus", "head_dim", "heads"}
    | {
        "iterations",
        "k",
        "kv_heads",
        "layers",
        "m",
        "max_bytes",
        "memory_cap_gib",
        "min_bytes",
        "n",
    }
    | {"new_tokens", "prompt", "seed", "seq_len", "split_k", "stages", "straggler_ms", "vocab"}
    | {"straggler_rank", "tile_k", "tile_m", "tile_n", "timeout_s", "tokens", "top_k", "warmup"}
    | {"warps"}
)
"""Parameters that are numbers, whatever the workload: imported runs are laid out by them too."""
_MAX_NUMBER, _MAX_STORED = 2**53, 2**63
NO_EFFECT = frozenset(
    {"seed", "iterations", "warmup", "repeats", "name", "notes", "preset", "timeout_s"}
    | {"profiled_ranks", "metrics"}
)
"""Parameters that name or bound an execution: whatever they are, it is the same job."""


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no blanks: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def check_params(params: Mapping[str, Any]) -> None:
    """UserError for a parameter with a value that no workload can have."""
    for name, value in params.items():
        if not isinstance(value, ParamValue):
            raise UserError(f"{name[:40]}: {value!r:.60} is not one value")
        limit = _MAX_NUMBER if name in NUMBERS else _MAX_STORED
        if isinstance(value, int | float) and not abs(value) < limit:  # false for nan
            raise UserError(f"{name[:40]}: {value!r:.60} is not a number below {limit}")
        if name in NUMBERS and isinstance(value, str | bool):
            raise UserError(f"{name}: {value!r:.60} is not a number")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One execution that is wanted."""

    workload: str
    params: Mapping[str, ParamValue] = field(default_factory=dict)
    "Every field of the workload's Params, defaults filled in."
    profilers: tuple[str, ...] = ()
    "Profiler passes after the clean pass, a subset of PROFILER_PASSES, in that order."
    repeats: int = 1
    "Processes of the clean pass; noise between processes is larger than inside one."
    gpu: str = "cpu"
    "GPU model name as the worker registers it, or `cpu`."
    device: str | None = None
    "One physical GPU of that model, by the id it is registered under; None is any of them."
    ncu_set: str = DEFAULT_NCU_SET
    "Which counters an ncu pass takes."
    keep_reports: bool = False
    "Keep the reports of nsys and ncu too; they hold private facts of the host."

    def __post_init__(self) -> None:
        check_params(self.params)
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise UserError(f"repeats: {self.repeats} is not in 1..{MAX_REPEATS}")
        if self.ncu_set not in NCU_SETS:
            raise UserError(f"ncu_set: {self.ncu_set!r} is not one of {', '.join(NCU_SETS)}")
        allowed = {str(p) for p in PROFILER_PASSES}
        for name in self.profilers:
            if name not in allowed:
                raise UserError(f"profilers: {name!r} is not one of {', '.join(sorted(allowed))}")
        if self.num_gpus > 1 and str(Pass.NCU) in self.profilers:
            raise UserError(
                "profilers: ncu replays kernels one at a time, and the "
                f"collectives of {self.num_gpus} GPUs would hang; choose nsys or "
                "trace"
            )

    @property
    def num_gpus(self) -> int:
        """GPUs of one host that the job needs at once, a process (rank) on each."""
        wanted = self.params.get("gpus")
        return wanted if isinstance(wanted, int) else 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": self.workload,
            "params": dict(self.params),
            "profilers": list(self.profilers),
            "repeats": self.repeats,
            "gpu": self.gpu,
            **({"device": self.device} if self.device else {}),
            **({"ncu_set": self.ncu_set} if self.ncu_set != DEFAULT_NCU_SET else {}),
            **({"keep_reports": True} if self.keep_reports else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "JobSpec":
        """Read `as_dict` output; UserError for a schema this version does not know."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise UserError(
                f"job spec: schema_version {data.get('schema_version')!r} is not {SCHEMA_VERSION}"
            )
        return cls(
            workload=data["workload"],
            params=dict(data["params"]),
            profilers=tuple(data["profilers"]),
            repeats=data["repeats"],
            gpu=data["gpu"],
            device=data.get("device"),
            ncu_set=data.get("ncu_set", DEFAULT_NCU_SET),
            keep_reports=data.get("keep_reports") is True,
        )

    @property
    def spec_hash(self) -> str:
        """Name the job: SHA-256 of the canonical JSON, first 16 hex digits."""
        return _hash16(self.as_dict())

    @property
    def comparable_hash(self) -> str:
        """Name what must be equal for two runs to be the same measurement.

        Workload and params; the GPU, the profilers and the repeats are left out.
        """
        return comparable_hash(self.workload, self.params)


def comparable_hash(workload: str | None, params: Mapping[str, Any]) -> str:
    """Name what was measured: together with the GPU's model, the one definition of "the same job".

    Days, hosts, versions and commits are not in it: a job measured again under others is the same.
    """
    kept = {k: v for k, v in params.items() if k not in NO_EFFECT and LATER_PARAMS.get(k) != v}
    return _hash16({"workload": workload, "params": kept})


def _hash16(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def program_name(words: Sequence[str]) -> str:
    """Return what a program is called: the script behind an interpreter, else the program."""
    program = Path(words[0]).name
    is_launcher = program.startswith("python") or program in ("torchrun", "accelerate", "mpirun")
    for i, word_ in enumerate(words[1:], 1):
        if is_launcher and words[i - 1] == "-m":
            return word_
        if is_launcher and word_.endswith((".py", ".ipynb")):
            return Path(word_).name
    return program


def normalise_profilers(names: Iterable[str]) -> tuple[str, ...]:
    """Return the passes in the order they run, each once; UserError for an unknown one."""
    wanted = {n.strip().lower() for n in names if n.strip()}
    unknown = wanted - {str(p) for p in Pass}
    if unknown:
        allowed = ", ".join(str(p) for p in PROFILER_PASSES)
        raise UserError(f"profilers: {sorted(unknown)[0]!r} is not one of {allowed}")
    return tuple(str(p) for p in PROFILER_PASSES if str(p) in wanted)


def expand_sweep(values: Mapping[str, tuple[ParamValue, ...]]) -> list[dict[str, ParamValue]]:
    """Return every combination, the last field varying fastest; UserError past the limit."""
    total = 1
    for options in values.values():
        total *= len(options)
    if total > MAX_SWEEP_JOBS:
        raise UserError(f"sweep: {total} jobs are more than {MAX_SWEEP_JOBS}; narrow one field")
    return [dict(zip(values, combo, strict=True)) for combo in product(*values.values())]
