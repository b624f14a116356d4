"""A memory curve of another pass is laid over the steps of a timeline, each stretched to it."""

import pandas as pd

from app.ui.timeline.canvas import laid_over


def points(rows: list[tuple[int, int, str | None]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["time_ns", "allocated_bytes", "phase"]).assign(device=0)


def steps(*spans: tuple[int, int, bool]) -> pd.DataFrame:
    return pd.DataFrame(spans, columns=["start_ns", "end_ns", "is_regular"])


def test_numbered_steps_lie_over_the_last_regular_ones() -> None:
    curve = points(
        [
            (5, 1, None),
            (1_000, 10, "BENCHMARK/iteration_0/forward"),
            (1_500, 30, "BENCHMARK/iteration_0/backward"),
            (2_000, 10, "BENCHMARK/iteration_1/forward"),
            (2_500, 40, "BENCHMARK/iteration_1/backward"),
        ]
    )
    found, num = laid_over(curve, steps((0, 50, False), (100, 200, True), (300, 500, True)))
    assert num == 2
    assert found["time_ns"].round().tolist() == [100, 150, 300, 500 - 200 // 501]
    assert found["allocated_bytes"].tolist() == [10, 30, 10, 40]


def test_a_curve_without_numbers_is_one_step_and_without_phases_none() -> None:
    curve = points([(10, 1, "forward"), (20, 2, "backward"), (29, 3, "optimizer")])
    found, num = laid_over(curve, steps((100, 300, True), (300, 500, True)))
    assert num == 1 and found["time_ns"].iloc[0] == 300 and found["time_ns"].iloc[-1] < 500
    assert laid_over(points([(1, 1, None)]), steps((0, 9, True)))[1] == 0
    assert laid_over(curve, steps((0, 9, False)))[1] == 0


def test_steps_without_numbers_begin_at_the_forward_pass_after_an_optimizer() -> None:
    phases = [
        "forward",
        "backward",
        "Optimizer.step#AdamW.step",
        "Optimizer.zero_grad#A",
        "forward",
    ]
    curve = points([(10 * i, i, phase) for i, phase in enumerate(phases)])
    found, num = laid_over(curve, steps((100, 300, True), (300, 500, True)))
    assert num == 2
    assert found["time_ns"].tolist() == [100, 150, 200, 250, 300]
