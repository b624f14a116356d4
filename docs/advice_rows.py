"""The generated parts of `docs/advice.md`: formulas from the models, the record that ships."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from analysis.advice import constants, models, settings
from analysis.advice.experiments import NO_MODEL
from analysis.advice.score import (
    LATER,
    SHIPPED,
    Outcome,
    read_outcomes,
    records_of,
    shipped_outcomes,
)

_MODELS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("`graph`: `cuda_graph=true`", models.graph_replay),
    ("`compile`: `compile=default`", models.compiled),
    ("`compile_graph`: reduce-overhead, max-autotune, `kv_cache=buffer`", models.compiled_graph),
    ("`dtype` and `tf32`", models.other_dtype),
    ("`attention`: sdpa or Triton instead of naive", models.fused_attention),
    ("`batch`: 2 and 4 times", models.larger_batch),
    ("`optimizer`: `fused_optimizer=true`", models.fused_optimizer),
    ("`compile` on a CPU", models.compiled_on_cpu),
    ("`batch` on a CPU", models.larger_batch_on_cpu),
    ("`allocator`: expandable segments", settings.expandable_segments),
    ("`tf32 (own program)`", settings.tf32_override),
    ("`threads` on a CPU", settings.more_threads),
    ("`pinned_copies` (two lines of the program)", settings.pinned_copies),
    ("`optimizer (own program)`: `fused=True`", settings.fused_optimizer),
)


def model_rows() -> str:
    """Return each model's formula, as its docstring says it."""
    parts = []
    for title, model in _MODELS:
        lines = (model.__doc__ or "").rstrip().splitlines()
        text = "\n".join([*lines[:1], *(line.removeprefix("    ") for line in lines[1:])])
        parts.append(f"### {title}\n\n{text}")
    return "\n\n".join(parts)


def constant_rows() -> str:
    """Return the constants with their values."""
    names = [n for n in vars(constants) if n.isupper() and n not in ("WIDTH", "MODEL_VERSION")]
    rows = [f"| `{n}` | {getattr(constants, n):g} |" for n in names]
    width = constants.WIDTH
    rows += [
        f"| half width, kernels decide | {width.gpu:g} (ln) |",
        f"| half width, host decides | {width.host:g} + variation of the base (ln) |",
        f"| added without a record | {width.untried:g} (ln) |",
    ]
    return "\n".join(["| constant | value |", "| --- | --- |", *rows])


def record_rows() -> str:
    """Return the record of each kind, over all outcomes that come with the program."""
    lines = [
        "| kind | outcomes | median error | inside the interval | |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r.kind} | {r.num_outcomes} | {r.median_error_frac:.1%} | {r.inside_frac:.0%} | "
        f"{'withheld' if r.is_poor else 'offered' if r.is_known else 'too few'} |"
        for r in records_of(shipped_outcomes()).values()
    ]
    return "\n".join(lines)


def held_out_rows() -> str:
    """Return the held-out pairs of the example data."""
    return _pairs(read_outcomes(SHIPPED))


def later_rows(version: int) -> str:
    """Return the pairs of `record_later.csv` as a version of the models predicts them."""
    outcomes = [x for x in read_outcomes(LATER) if x.model_version == version]
    error = statistics.median(abs(x.error_frac) for x in outcomes)
    inside = sum(x.is_inside for x in outcomes)
    return (
        f"{len(outcomes)} pairs: median error {error:.1%}, {inside} inside the stated interval "
        f"({inside / len(outcomes):.0%}).\n\n{_pairs(outcomes)}"
    )


def _pairs(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "| kind | run | change | before, ms | predicted, ms | interval, ms | measured, ms | error "
        "|",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {x.kind} | {x.base} | `{x.experiment}` | {x.base_ns / 1e6:.4g} | "
        f"{x.predicted_ns / 1e6:.4g} | {x.low_ns / 1e6:.4g} to {x.high_ns / 1e6:.4g} | "
        f"{x.measured_ns / 1e6:.4g} | {x.error_frac:+.1%}{'' if x.is_inside else ', missed'} |"
        for x in sorted(outcomes, key=lambda x: (x.kind, x.base, x.experiment))
    ]
    return "\n".join(lines)


def not_offered_rows() -> str:
    """Return what no model reaches, with the reason."""
    return "\n".join(f"- {name}: {reason}." for name, reason in NO_MODEL.items())
