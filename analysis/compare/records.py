"""What a comparison is made of: frozen records that pages, exports and the gate read."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from analysis.compare.labels import RanOn

Verdict = Literal["faster", "slower", "no_difference", "not_enough_samples", "not_comparable"]
IntervalBasis = Literal["processes", "samples"]
"""What an interval was made from: `samples` of one process miss the spread between processes."""
Effect = Literal["intended", "breaks", "noted", "unknown"]
"""`breaks` makes the ratio meaningless, `unknown` is known on one side only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One configuration field that is not the same on both sides."""

    field: str
    a: str | None
    b: str | None
    effect: Effect

    @property
    def change(self) -> str:
        """Return it as a text: `compile none -> default`."""
        a, b = ("unknown" if value is None else value for value in (self.a, self.b))
        return f"{self.field} {a} -> {b}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison."""

    label: str
    run_ids: tuple[str, ...]
    n_processes: int
    n_samples: int
    median: float | None
    "Median of all samples, in the comparison's unit: what the run's page shows; None if unknown."
    process_medians: tuple[float, ...]
    group: str
    "What was treated as one independent measurement: `process` or `run`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One measurement of side B against its partner of side A, where a side holds several."""

    a: Side
    b: Side
    what: str
    "The fields that differ and matter: `compile none -> default`; empty when none does."
    verdict: Verdict
    reason: str
    ratio: float | None
    ci95: tuple[float, float] | None
    ci95_basis: IntervalBasis | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A flag on the samples that the reader must see; no sample is dropped."""

    code: str
    "drift, outliers, noisy_process, trend, block_order, throttled."
    side: str
    message: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One step of the waterfall."""

    name: str
    kind: str
    "kernel, overlap, transfer, idle, other."
    a_ns: int
    b_ns: int

    @property
    def delta_ns(self) -> int:
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """From A to B in steps that add up exactly: total_a_ns + sum of deltas = total_b_ns."""

    mode: str
    "`span` (first to last GPU operation), `kernel_time` or `operators`."
    per: str
    """`capture`, `iteration` where the two captures hold different numbers of iterations, or
    `step`."""
    run_a: str
    run_b: str
    "The runs whose captures are shown: the newest with kernels on each side."
    total_a_ns: int
    total_b_ns: int
    bars: tuple[Bar, ...]


@dataclass(slots=True, kw_only=True)
class KernelPair:
    """Kernels of A and of B that do the same work; None on a side that has no partner."""

    a: str | None
    b: str | None
    match: str
    "name, path+order, category, fused, or unmatched."
    confidence: float
    "0 to 1."
    category: str
    path: str | None
    "Normalised range path the pair was found in, None without ranges."
    a_ns: int = 0
    b_ns: int = 0
    a_count: float = 0
    b_count: float = 0
    "What the times cover: the whole capture, a step or an iteration."

    @property
    def delta_ns(self) -> int:
        return self.b_ns - self.a_ns

    def add(self, side: str, total_ns: int, count: float) -> None:
        """Count more launches of one side in."""
        if side == "a":
            self.a_ns += total_ns
            self.a_count += count
        else:
            self.b_ns += total_ns
            self.b_count += count


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One GPU's latency, and what share of its own peaks that latency reaches.

    `bandwidth_frac` and `compute_frac` are of the peaks measured on that very GPU.
    """

    run_id: str
    label: str
    gpu: str
    latency_ms: float
    relative_latency: float
    "Latency over the first row's."
    bandwidth_frac: float | None
    compute_frac: float | None
    datasheet_bandwidth_frac: float | None
    datasheet_compute_frac: float | None
    error: str | None
    "Set when a share is over 100 %: the cost model is wrong, and the share is withheld."


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth:
    """Bytes alive at the peak from one allocation site, on both sides."""

    site: str
    a_bytes: int
    b_bytes: int
    a_count: int
    b_count: int

    @property
    def delta_bytes(self) -> int:
        return self.b_bytes - self.a_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How much of more GPUs arrives as throughput: of tokens a second, for each GPU."""

    ranks_a: int
    ranks_b: int
    throughput_ratio: float
    "Tokens a second of B over those of A."
    efficiency: float
    "`throughput_ratio` x ranks_a / ranks_b: 1 is ideal."
    ci95: tuple[float, float] | None
    "Of the efficiency, where the comparison's ratio has an interval."
    ci95_basis: IntervalBasis | None

    @property
    def words(self) -> str:
        interval = ""
        if self.ci95:
            inside = " inside one process" if self.ci95_basis == "samples" else ""
            low, high = (round(100 * v) for v in self.ci95)
            interval = f" (95 %{inside}: {low} to {high} %)"
        return (
            f"scaling from {self.ranks_a} to {self.ranks_b} GPUs: {self.throughput_ratio:.2f} x "
            f"the throughput, efficiency {round(100 * self.efficiency)} %{interval}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B against A. `ratio` is B / A of the metric; below 1 is faster for a time."""

    metric: str
    unit: str
    higher_is_better: bool
    device: RanOn
    "Of a CPU run a kernel is an operator: see `words.WORDS`."
    comparable: bool
    intended: Difference | None
    differs: tuple[Difference, ...]
    banner: str | None
    verdict: Verdict
    reason: str
    next_step: str | None
    ratio: float | None
    ci95: tuple[float, float] | None
    ci95_basis: IntervalBasis | None
    p_value: float | None
    noise_floor_frac: float | None
    a: Side
    b: Side
    marks: tuple[Mark, ...]
    waterfall: Waterfall | None
    kernel_waterfall: Waterfall | None
    operator_waterfall: Waterfall | None
    kernels: tuple[KernelPair, ...]
    memory: tuple[MemoryGrowth, ...]
    scoreboard: tuple[ScoreRow, ...]
    metric_per: str = "capture"
    "What a profiled time covers: the whole capture, a step or an iteration."
    pairs: tuple[Pair, ...]
    "Each measurement of B against its partner; empty with one measurement on each side."
    scaling: Scaling | None = None
    "Where the sides have different numbers of ranks."

    @property
    def ci95_name(self) -> str:
        """Name the interval, and what it leaves out."""
        if self.ci95_basis == "samples":
            return "95 % interval inside one process, without the noise between processes"
        return "95 % interval"

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `compare --format json`."""
        falls = {"waterfall": self.waterfall, "kernel_waterfall": self.kernel_waterfall}
        falls |= {"operator_waterfall": self.operator_waterfall}
        return {
            "comparable": self.comparable,
            "differs": [asdict(d) for d in self.differs],
            "intended": asdict(self.intended) if self.intended else None,
            "banner": self.banner,
            "metric": self.metric,
            "unit": self.unit,
            "metric_per": self.metric_per,
            "device": self.device,
            "higher_is_better": self.higher_is_better,
            "verdict": self.verdict,
            "reason": self.reason,
            "next_step": self.next_step,
            "ratio": self.ratio,
            "ci95": list(self.ci95) if self.ci95 else None,
            "ci95_basis": self.ci95_basis,
            "p_value": self.p_value,
            "noise_floor_frac": self.noise_floor_frac,
            "a": _side(self.a),
            "b": _side(self.b),
            "marks": [asdict(m) for m in self.marks],
            "scaling": asdict(self.scaling) if self.scaling else None,
            "waterfall_mode": self.waterfall.mode if self.waterfall else None,
            "waterfall_per": self.waterfall.per if self.waterfall else None,
            "total_a_ns": self.waterfall.total_a_ns if self.waterfall else None,
            "total_b_ns": self.waterfall.total_b_ns if self.waterfall else None,
            **{name: _bars(fall) for name, fall in falls.items()},
            "kernels": [_with_delta(k, "delta_ns") for k in self.kernels],
            "kernels_without_partner": {
                "a": [k.a for k in self.kernels if k.b is None],
                "b": [k.b for k in self.kernels if k.a is None],
            },
            "memory_at_peak": [_with_delta(m, "delta_bytes") for m in self.memory],
            "scoreboard": [asdict(row) for row in self.scoreboard],
            "pairs": [
                {**asdict(pair), "a": _side(pair.a), "b": _side(pair.b)} for pair in self.pairs
            ],
        }


def _side(side: Side) -> dict[str, Any]:
    return {
        **asdict(side),
        "run_ids": list(side.run_ids),
        "process_medians": list(side.process_medians),
    }


def _bars(fall: Waterfall | None) -> list[dict[str, Any]]:
    return [_with_delta(bar, "delta_ns") for bar in fall.bars] if fall else []


def _with_delta(record: Any, name: str) -> dict[str, Any]:
    return {**asdict(record), name: getattr(record, name)}
