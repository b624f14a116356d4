"""Repeats from a comparison: A B A B for what can run here, else the reason why not."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlite_utils import Database

from app.ui.compare.follow_up import REPEATS, interleaved
from core.config import DataDir
from db.fetch import run_view


@pytest.fixture
def views(
    db: Database, data_dir: DataDir, make_run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., object]:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    return lambda **params: run_view(db, data_dir, make_run(**params))


def test_repeats_of_submitted_runs_alternate(views: Callable[..., object]) -> None:
    a, b = views(name="a", batch=1), views(name="b", batch=2)
    jobs, why_not = interleaved([a], [b])  # type: ignore[list-item]
    assert [j.params["batch"] for j in jobs] == [1, 2] * REPEATS and why_not == ""


def test_several_runs_of_one_measurement_are_repeated_once_a_round(
    views: Callable[..., object],
) -> None:
    a, b = [views(batch=1), views(batch=1)], [views(batch=2)]
    jobs, _ = interleaved(a, b)  # type: ignore[arg-type]
    assert [j.params["batch"] for j in jobs] == [1, 2] * REPEATS


def test_a_gpu_without_a_worker_is_named_as_the_reason(views: Callable[..., object]) -> None:
    a, b = views(name="mine", batch=1, gpu="RTX 4090"), views(batch=2)
    jobs, why_not = interleaved([a], [b])  # type: ignore[list-item]
    assert jobs == [] and "side A (mine) ran on RTX 4090" in why_not


def test_launches_of_an_iteration_are_counted_in_whole_numbers() -> None:
    from app.ui.compare.head import _of_one
    from tests.analysis.run_views import nsys_view

    view = nsys_view("decode_eager")  # 5 iterations
    many = replace(view, summary={**view.summary, "num_kernels": 5980})
    some = replace(view, summary={**view.summary, "num_kernels": 3976})
    shown = _of_one(many, some, "num_kernels", "Launches", "").value
    assert shown == "1\u202f196 \u2192 795"


def test_the_title_names_a_variable_only_where_nothing_else_sets_the_sides_apart(
    views: Callable[..., object],
) -> None:
    from analysis.compare.engine import compare
    from app.ui.compare.head import title_of

    a, b, c = (
        views(name=n, dtype=d, fused_optimizer=f)
        for n, d, f in (("a", "bf16", False), ("b", "bf16", True), ("c", "fp32", True))
    )
    titles = [title_of(compare([a], [x]), [a], [x]) for x in (b, c)]  # type: ignore[list-item]
    assert titles == ["fused_optimizer off \u2192 on", "a \u2192 c"]
