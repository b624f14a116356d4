"""Runs that the tests of studies are made of."""

from analysis.runview import RunView
from core.model_sizes import MODEL_SIZES
from tests.analysis.compare.views import build_view

SMALL = MODEL_SIZES["transformer"]["small"]
LARGE = MODEL_SIZES["transformer"]["large"]


def transformer(
    run_id: str, ms: float | None, *, size: dict[str, int] = SMALL, seq_len: int = 256, **changes
) -> RunView:
    params = {**size, "seq_len": seq_len, "mode": "forward", "dtype": "fp32", "batch": 4}
    summary = {} if ms is None else {"latency_ms": {"median": ms, "ci95": [ms * 0.9, ms * 1.1]}}
    params |= changes.pop("params", {})
    fixed = {"id": run_id, "workload": "transformer", "params": params, "summary": summary}
    return build_view(**(fixed | changes))


def attention(run_id: str, name: str, length: int, ms: float) -> RunView:
    params = {"implementation": name, "seq_len": length, "head_dim": 64, "batch": 1}
    summary = {"latency_ms": {"median": ms}}
    return build_view(id=run_id, workload="attention", params=params, summary=summary)
