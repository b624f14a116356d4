"""The latency of a program's steps, as the result line of a clean pass says it."""

import statistics
from collections.abc import Sequence
from typing import Any

from worker.profile.records import Process
from worker.profile.steps import Steps, phase_times

TO_NEXT, ALONE = "step to step", "step alone"


def step_latency(
    kinds: Sequence[Steps], rank0: Process, *, wanted: str, num_skipped: int, num_steps: int
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return the samples of the main kind of steps with what they are, and warnings about them.

    `num_skipped` of 0: those until step times settle. `num_steps` of 0: all that follow.
    """
    main, *others = kinds
    first = num_skipped or main.num_unsettled()
    last = first + num_steps if num_steps else None
    to_next, num_together = main.to_next_samples(first, last)
    alone = [ns for ns in main.alone_ns[first:last] if ns is not None]
    chosen = wanted if to_next else ALONE
    phases = {ALONE: alone, TO_NEXT: to_next} | {
        other.title: [ns for ns in other.alone_ns[other.num_unsettled() :] if ns is not None]
        for other in others
    }
    phases |= phase_times(rank0, main, first, last)
    found = {
        "samples_ns": to_next if chosen == TO_NEXT else alone,
        "phase_samples_ns": {name: values for name, values in phases.items() if values},
        "steps": {
            "kind": main.kind,
            "title": main.title,
            "latency": chosen,
            "clock": "CUDA events" if main.on_gpu else "the host's clock",
            "num_steps": len(main),
            "num_skipped": first,
        },
    }
    warnings = []
    if chosen == TO_NEXT and alone and statistics.median(alone) < 0.5 * statistics.median(to_next):
        warnings.append(_much_between(alone, to_next))
    if num_together > 1 and chosen == TO_NEXT:
        warnings.append(_in_groups(len(to_next), num_together))
    if 10 * rank0.facts.get("calls_elsewhere", 0) > len(main) and main.kind == "inference":
        warnings.append(_elsewhere(rank0.facts["calls_elsewhere"], len(main)))
    if len(main) - first < max(num_steps, 1):
        warnings.append(_too_few(len(main), first, num_steps))
    return found, warnings


def _in_groups(num_samples: int, num_together: int) -> dict[str, str]:
    message = (
        f"the steps are short, and a CUDA event around each would slow them down: each of the "
        f"{num_samples} samples is the mean of {num_together} steps in a row, so they spread less "
        "than single steps. `--latency alone` times every step"
    )
    return {"code": "steps_in_groups", "message": message}


def _elsewhere(num_calls: int, num_steps: int) -> dict[str, str]:
    message = (
        f"calls by other threads than the first one that called a model, at least {num_calls}, are "
        f"not among the {num_steps} steps: the time between these may be theirs"
    )
    return {"code": "calls_elsewhere", "message": message}


def _too_few(num_made: int, num_skipped: int, num_wanted: int) -> dict[str, str]:
    asked = f" (`--steps` asks for {num_wanted})" if num_wanted else ""
    message = (
        f"steps that the program made: {num_made}; left out at the beginning: {num_skipped}; "
        f"left to measure: {max(0, num_made - num_skipped)}{asked}"
    )
    return {"code": "few_steps", "message": message}


def _much_between(alone: Sequence[int], to_next: Sequence[int]) -> dict[str, str]:
    part = 1 - statistics.median(alone) / statistics.median(to_next)
    message = (
        f"{part:.0%} of the time from step to step lies between steps: data, sampling, logging, or "
        f"waiting for requests; `{ALONE}` is the step without it"
    )
    return {"code": "time_between_steps", "message": message}
