"""Describe a workload: its parameters, presets, costs and how it is built. No torch here."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from core.errors import UserError

ParamValue = str | int | float | bool
TINY = "tiny"
"""Name of the preset made of every field's smallest value; the default on a CPU."""
CUSTOM = "custom"
"""Value of `preset` when a dimension differs from the preset's."""


def param(
    default: ParamValue,
    *,
    doc: str,
    unit: str = "",
    choices: tuple[ParamValue, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    smallest: ParamValue | None = None,
    basic: bool = False,
) -> Any:
    """Declare one field of a Params dataclass with all that a form and a check need."""
    metadata = {
        "doc": doc,
        "unit": unit,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "smallest": smallest,
        "basic": basic,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonParams:
    """Settings that every workload has."""

    preset: str = param("", doc="named dimensions to start from", basic=True)
    iterations: int = param(
        20, doc="measured iterations of the clean pass", minimum=1, maximum=100_000, smallest=12
    )
    warmup: int = param(
        5, doc="iterations before the measured part", minimum=0, maximum=10_000, smallest=2
    )
    seed: int = param(0, doc="seed of weights and inputs", minimum=0, maximum=2**31 - 1)
    memory_cap_gib: float = param(
        0.0, doc="memory limit, to act as a smaller GPU; 0 is none", unit="GiB", minimum=0
    )


ALL_RANKS = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelParams(CommonParams):
    """Settings of a workload that can run on several GPUs of one host, a process (rank) on each."""

    gpus: int = param(
        1, doc="GPUs of one host, one rank each; on a CPU: processes", minimum=1, maximum=64,
        basic=True,
    )  # fmt: skip
    profiled_ranks: str = param(
        ALL_RANKS, doc="ranks under a profiler: all, one (0), a range (0-3) or a list ([0,3])"
    )
    straggler_rank: int = param(
        -1, doc="rank that sleeps before each iteration, to try a straggler; -1 is none", minimum=-1
    )
    straggler_ms: float = param(0.0, doc="how long the straggler sleeps", unit="ms", minimum=0)

    def __post_init__(self) -> None:
        if self.straggler_rank >= self.gpus:
            raise UserError(
                f"straggler_rank: {self.straggler_rank} is not one of the {self.gpus} ranks"
            )
        self.ranks_to_profile()

    def ranks_to_profile(self) -> tuple[int, ...]:
        """Return the ranks that run under a profiler; UserError for a rank there is not."""
        return parse_ranks(self.profiled_ranks, self.gpus)


def parse_ranks(text: str, num_ranks: int) -> tuple[int, ...]:
    """Return the ranks that `all`, `0`, `0-3` or `[0,3]` names; UserError for any other."""
    if text.strip() in ("", ALL_RANKS):
        return tuple(range(num_ranks))
    ranks: set[int] = set()
    for part in text.strip().strip("[]").split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip(), re.ASCII)
        if match is None:
            raise UserError(f"profiled_ranks: {text[:60]!r} is not all, a rank (0), 0-3 or [0,3]")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < num_ranks:
            known = f"among the ranks 0 to {num_ranks - 1}"
            raise UserError(f"profiled_ranks: {text[:60]!r} is not {known}")
        ranks |= set(range(first, last + 1))
    return tuple(sorted(ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamField:
    """One field as a form or a check sees it."""

    name: str
    kind: str
    "`int`, `float`, `bool` or `str`."
    default: ParamValue
    doc: str
    unit: str
    choices: tuple[ParamValue, ...]
    minimum: float | None
    maximum: float | None
    smallest: ParamValue | None
    "Value used by the `tiny` preset; None keeps the default."
    basic: bool
    "Whether the submit form shows it at once, not under `more`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Work of one iteration by the workload's own formula."""

    flops: float | None
    "Of one GPU, where the job has several: the part that is compared with one GPU's peak."
    bytes: float | None
    "Fewest bytes that the memory of one GPU must move."
    flops_dtype: str
    "`fp32 tf32 bf16 fp16 fp8 int8`: which peak the FLOPs are compared with."
    num_tokens: int | None
    "Of the whole job."

    def as_dict(self) -> dict[str, Any]:
        """Return the result line's `cost`; what is unknown is absent."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


@dataclass(frozen=True, kw_only=True)
class WorkloadSpec:
    """Everything known about a workload. `error` says why a broken one cannot be used."""

    name: str
    title: str
    about: str
    source: str = ""
    "Link to where the computation, or its formulas, come from."
    params: type[CommonParams] = CommonParams
    presets: Mapping[str, Mapping[str, ParamValue]] = field(default_factory=dict)
    default_preset: str = ""
    "Preset on a GPU when none is given; empty: the fields' own defaults."
    implementations: tuple[str, ...] = ()
    "Choices of the field that names the implementation; the first is the baseline."
    phases: tuple[str, ...] = ()
    "Top-level ranges inside an iteration."
    modes: tuple[str, ...] = ()
    runs_on_cpu: bool = True
    build: Callable[[Any, Any], Any] | None = None
    "`build(params, context) -> Program`: allocates and prepares; imports torch."
    cost: Callable[[Any], Cost] | None = None
    "Work of one iteration."
    estimate_memory_bytes: Callable[[Any], int | None] | None = None
    "Device memory needed, the CUDA context left out; None when it cannot be known."
    error: str = ""

    @cached_property
    def fields(self) -> tuple[ParamField, ...]:
        """Return the params in form order: basics first, then the rest, each as declared."""
        fields = [_as_field(f, self) for f in dataclasses.fields(self.params)]
        return tuple(sorted(fields, key=lambda f: not f.basic))

    @property
    def all_presets(self) -> dict[str, dict[str, ParamValue]]:
        """Return the presets by name, `tiny` (every field's smallest value) last."""
        presets = {name: dict(values) for name, values in self.presets.items()}
        presets[TINY] = {f.name: f.smallest for f in self.fields if f.smallest is not None}
        return presets


def _as_field(f: "dataclasses.Field[Any]", spec: WorkloadSpec) -> ParamField:
    meta = dict(f.metadata)
    default: Any = f.default
    if f.name == "preset":
        meta["choices"] = (*spec.presets, TINY, CUSTOM)
        default = spec.default_preset or CUSTOM
    return ParamField(name=f.name, kind=type(default).__name__, default=default, **meta)
