"""What limits a run of several ranks: one that is late, or communication that nothing covers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.idle import IDLE_FRAC
from analysis.runview import RunView
from analysis.trace.collective_kinds import POINT_TO_POINT
from analysis.verdict.facts import RunVerdict, VerdictKind, counted, milliseconds, percent

MIN_LATE_FRAC = 0.05
"""A rank that all others wait for this part of the time is named before anything else."""
MIN_LATE_RATIO = 2.0
"""So many times longer than for any other rank: else ranks take turns at being last."""
MIN_STEPS = 3
"""Fewer steps cannot be separated from the ranks' entry into the recording."""
MIN_EXPOSED_FRAC = 0.15
"""Less exposed communication than this limits nothing."""
MAX_SPEEDUP = 1.25
"""A clean iteration longer than this many profiled steps is not one step."""
_KIND_WORDS = {"send_recv": "send and receive", "unknown": "communication"}

Rows = Sequence[Mapping[str, Any]]


def rank_limit(view: RunView) -> RunVerdict | None:
    """Return what ranks limit the run by; None where they do not, or nothing is known of them."""
    rows = view.ranks.get("ranks", [])
    return _late_rank(view, rows) or _exposed(view, rows)


def kind_words(kind: str) -> str:
    """Return a kind of collective as people write it."""
    return _KIND_WORDS.get(kind, kind.replace("_", "-"))


def place_words(where: str) -> str:
    """Return where a rank was late: a host range, by its name."""
    return "its data loader" if "dataloader" in where.lower().replace("_", "") else where


def _late_rank(view: RunView, rows: Rows) -> RunVerdict | None:
    lateness = _lateness(view, rows)
    if lateness is None:
        return None
    late, span_ns, steps = lateness
    (late_ns, rank), (next_ns, _) = late[:2]
    if late_ns < MIN_LATE_FRAC * span_ns or late_ns < MIN_LATE_RATIO * next_ns:
        return None
    clean = _clean_room(view, [row for row in rows if row["rank"] != rank])
    if clean is not None and not clean.can_hold_a_late_rank:
        return None
    mine = [step for step in steps if step["straggler"] == rank]
    each = f"{milliseconds(late_ns / len(steps))} a step" if mine else milliseconds(late_ns)
    if clean is not None and clean.room_ns < late_ns / len(steps):
        each = f"up to {milliseconds(clean.room_ns)} a step"
    cause, where = _usual_cause(mine)
    place = f", in {place_words(where)}" if where else ""
    place = ", in its kernels" if cause == "compute" else place
    evidence = [f"the other ranks wait for it {percent(min(1.0, late_ns / span_ns))} of the time"]
    if steps:
        evidence.append(
            f"it comes last in {len(mine)} of {counted(len(steps), 'step')}; the first is left out"
        )
    if cause == "host":
        evidence.append("its GPU is idle meanwhile")
    if clean is not None:
        evidence.append(f"{clean.words}, so others can wait for {milliseconds(clean.room_ns)}")
    return RunVerdict(
        kind=VerdictKind.STRAGGLER,
        headline=f"Rank {rank} is late by {each}{place}",
        evidence=(*evidence, *_shares(view, rows)),
        next_steps=(_LATE_STEPS.get(cause or "", _LATE_STEPS[""]),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CleanRoom:
    """Waiting time by the clean pass: a profiler slows hosts, by different amounts."""

    latency_ns: float
    period_ns: float
    "Of a step under the profiler."
    compute_ns: float
    "Of a step, on the rank that computes longest."

    @property
    def room_ns(self) -> float:
        return max(0.0, self.latency_ns - self.compute_ns)

    @property
    def can_hold_a_late_rank(self) -> bool:
        """Whether a late rank seen under the profiler may be one without it too.

        Not where the profiler itself made the step longer by more than ranks can wait without it.
        """
        enough = self.room_ns >= MIN_LATE_FRAC * self.latency_ns
        return enough and self.period_ns - self.latency_ns < self.room_ns

    @property
    def words(self) -> str:
        return (
            f"clean pass: an iteration of {milliseconds(self.latency_ns)} holds "
            f"{milliseconds(self.compute_ns)} of compute"
        )


def _clean_room(view: RunView, rows: Rows) -> _CleanRoom | None:
    """Return what a clean iteration leaves these ranks; None where none was measured."""
    median_ms = (view.summary.get("latency_ms") or {}).get("median")
    period_ns = view.by_step.facts.get("period_ns")
    steps = view.ranks.get("steps", [])
    if not median_ms or not period_ns or len(steps) < MIN_STEPS or not rows:
        return None
    latency_ns = median_ms * 1e6
    if latency_ns > MAX_SPEEDUP * period_ns:
        return None
    compute_ns = max(row["compute_ns"] for row in rows) / len(steps)
    return _CleanRoom(latency_ns=latency_ns, period_ns=period_ns, compute_ns=compute_ns)


def _lateness(view: RunView, rows: Rows) -> tuple[list[tuple[int, int]], int, Rows] | None:
    """Return (waited for it [ns], rank), longest first, the time it is part of, and the steps.

    From the steps after the first where there are at least MIN_STEPS: ranks enter a recording at
    different times, and their waits for each other then do not describe the program. Else from
    the whole capture. None where fewer than two ranks are known.
    """
    of_rank = {row["rank"]: row["late_ns"] for row in rows if "late_ns" in row}
    if len(of_rank) < 2:
        return None
    steps = view.ranks.get("steps", [])
    period_ns = view.by_step.facts.get("period_ns")
    if len(steps) < MIN_STEPS or not period_ns:
        late = sorted(((ns, rank) for rank, ns in of_rank.items()), reverse=True)
        return late, max(row["span_ns"] for row in rows if row["rank"] == late[0][1]), steps
    regular = steps[1:]
    waited = Counter(dict.fromkeys(of_rank, 0))
    for step in regular:
        waited[step["straggler"]] += step["waited_ns"]
    late = sorted(((ns, rank) for rank, ns in waited.items()), reverse=True)
    return late, int(period_ns * len(regular)), regular


_LATE_STEPS = {
    "host": "See on the Timeline tab what that rank's host does before its collectives: data "
    "loading, evaluation, logging, a garbage collection, a slower CPU",
    "compute": "Compare that rank's kernels with another's: more work in its part of the batch, a "
    "GPU at lower clocks, another program on it",
    "": "See on the Timeline tab what that rank does before its collectives",
}


def _usual_cause(steps: Rows) -> tuple[str | None, str | None]:
    causes = Counter((step.get("cause"), step.get("where")) for step in steps)
    return causes.most_common(1)[0][0] if causes else (None, None)


def _exposed(view: RunView, rows: Rows) -> RunVerdict | None:
    known = [row["exposed_frac"] for row in rows if "exposed_frac" in row]
    exposed = sum(known) / len(known) if known else 0.0
    clean = _clean_room(view, rows)
    most_exposed = clean.room_ns / clean.latency_ns if clean is not None else 1.0
    is_cut, exposed = exposed > most_exposed, min(exposed, most_exposed)
    idle = sum(row["idle_ns"] / row["span_ns"] for row in rows) / len(rows) if rows else 0.0
    if exposed < MIN_EXPOSED_FRAC or exposed < idle:
        return None
    kinds: Mapping[str, float] = view.ranks.get("exposed_by_kind", {})
    most = max(kinds, key=lambda kind: kinds[kind], default="unknown")
    share = min(exposed, kinds.get(most, exposed))
    step = "step" if view.ranks.get("steps") else "time"
    return RunVerdict(
        kind=VerdictKind.COMMUNICATION_BOUND,
        headline=f"Communication-bound: {'up to ' if is_cut else ''}{percent(share)} of the {step} "
        f"is exposed {kind_words(most)}",
        evidence=(*_shares(view, rows), *([clean.words] if clean is not None else [])),
        next_steps=_OF_PIPELINE if most == POINT_TO_POINT else _OF_COLLECTIVES,
    )


_OF_COLLECTIVES = (
    "Overlap it with compute: smaller buckets or earlier launches (ddp: bucket_cap_mb, "
    "fsdp2: prefetch), or less of it: bf16 gradients, a larger batch a rank",
    "Hold its bus bandwidth on the Ranks tab against the link's (the allreduce workload)",
)
_OF_PIPELINE = (
    "Make the pipeline's bubbles smaller: more micro-batches a step, interleaved stages, stages of "
    "equal time (the Ranks tab has each stage's bubble)",
)


def filled_by_compute(view: RunView) -> RunVerdict | None:
    """Return how far compute fills a clean iteration of several ranks; None where it does not.

    A collective's kernels wait for the other ranks, longer under a profiler: their time says
    nothing of how busy the GPUs are without one.
    """
    rows = view.ranks.get("ranks", [])
    clean = _clean_room(view, rows) if len(rows) > 1 else None
    if clean is None or clean.room_ns > IDLE_FRAC * clean.latency_ns:
        return None
    share = min(1.0, clean.compute_ns / clean.latency_ns)
    return RunVerdict(
        kind=VerdictKind.UNKNOWN,
        headline=f"Compute fills {percent(share)} of an iteration of "
        f"{milliseconds(clean.latency_ns)}: at most {percent(1 - share)} is exposed communication "
        "or waiting",
        evidence=(f"{clean.words} on the rank that computes longest", *_shares(view, rows)),
        next_steps=(
            "Make each rank's own kernels faster, as on one GPU: see them by class and by phase",
        ),
    )


def _shares(view: RunView, rows: Rows) -> tuple[str, ...]:
    """Return how communication divides, over all ranks."""
    total = sum(row["communication_ns"] for row in rows)
    if not total:
        return ()
    exposed = sum(row["exposed_ns"] for row in rows)
    covered = f"compute covers {percent(1 - exposed / total)} of the communication"
    waits = [row["wait_ns"] for row in rows if "wait_ns" in row]
    if not waits:
        return (covered,)
    return (covered, f"{percent(sum(waits) / total)} of it waits for the slowest rank")
