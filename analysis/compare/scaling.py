"""What more GPUs buy: the throughput of side B over that of side A, for each GPU."""

from collections.abc import Iterable, Sequence
from typing import Any

from analysis.compare.records import IntervalBasis, Scaling
from analysis.runview import RunView

_RATES = ("tokens_per_s", "tokens/s")


def scaling_of(
    a: Sequence[RunView],
    b: Sequence[RunView],
    metric: str,
    ratio: float | None,
    ci95: tuple[float, float] | None,
    basis: IntervalBasis | None,
) -> Scaling | None:
    """Return the scaling efficiency by the ratio B / A of a latency or of tokens a second.

    None where both sides have equally many ranks, or one side is not of one number of them, or for
    a latency where the tokens of an iteration are not known.
    """
    ranks_a, ranks_b = _one(map(num_ranks, a)), _one(map(num_ranks, b))
    if ratio is None or ranks_a is None or ranks_b is None or ranks_a == ranks_b:
        return None
    per_gpu = ranks_a / ranks_b
    if metric == "latency":
        tokens_a, tokens_b = (_one(v.cost.get("num_tokens") for v in side) for side in (a, b))
        if not tokens_a or not tokens_b:
            return None
        more = tokens_b / tokens_a
        low, high = (1 / v for v in reversed(ci95)) if ci95 else (None, None)
        ratio = 1 / ratio
    elif metric in _RATES:
        more = 1.0
        low, high = ci95 or (None, None)
    else:
        return None
    return Scaling(
        ranks_a=ranks_a,
        ranks_b=ranks_b,
        throughput_ratio=more * ratio,
        efficiency=per_gpu * more * ratio,
        ci95=None if low is None or high is None else (per_gpu * more * low, per_gpu * more * high),
        ci95_basis=basis,
    )


def num_ranks(view: RunView) -> int:
    """Return the ranks of a run: as its job asked, else as its captures hold; 1 if unknown."""
    asked = view.run.params.get("gpus")
    return int(asked) if asked else int(view.summary.get("num_ranks") or 1)


def _one(values: Iterable[Any]) -> Any:
    """Return the value that all have; None where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None
