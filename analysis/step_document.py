"""The steps, operators and host time of a run as the command line gives them."""

from typing import Any

from analysis.assemble import class_fractions
from analysis.runview import StepView
from analysis.trace.operators import operators_document


def steps_of(view: StepView) -> dict[str, Any] | None:
    """Return `steps` of `show --json` with the fractions of a step; None where there are none."""
    if "source" not in view.facts:
        return None
    return {**view.facts, **step_fractions(view)}


def step_fractions(view: StepView) -> dict[str, float]:
    """Return gemm_frac, attention_frac and unclassified_frac of a regular step."""
    return class_fractions(view.kernels) if len(view.kernels) else {}


def by_step_document(view: StepView) -> dict[str, Any]:
    """Return the keys that tell of steps, operators and what the host did while the GPU waited."""
    steps = steps_of(view)
    reason = view.facts.get("reason", "no timeline was recorded")
    return {
        "steps": steps,
        **({} if steps else {"steps_reason": reason}),
        "operators": operators_document(view.operators) if len(view.operators) else [],
        "idle_host": view.idle_host.astype(object).to_dict("records"),
    }
