"""How much the GPU waits is read off the clean pass where there is one."""

import pandas as pd
import pytest

from analysis.idle import idle_figures, idle_of, idle_of_run
from analysis.iterations import at_path, iteration_kernel_ns, num_iterations
from analysis.runview import StepView
from analysis.verdict import VerdictKind, idle_basis, run_verdict
from analysis.verdict.facts import idle_causes, launches_per_iteration
from tests.analysis.run_views import empty_view, nsys_view


def summary(latency_ms: float | None, profiled: float = 0.61, busy_ns: int = 9) -> dict:
    found = {"profiled_idle_frac": profiled, "kernel_time_ns": 10, "busy_ns": busy_ns}
    return found | ({"latency_ms": {"median": latency_ms}} if latency_ms else {})


def phases(*rows: tuple[str, int, int | None]) -> pd.DataFrame:
    """Return rows of (path, ranges, kernel ns)."""
    return pd.DataFrame(rows, columns=["path", "num_ranges", "kernel_ns"])


def test_the_clean_latency_decides_and_the_profiled_share_stays_beside_it():
    found = idle_figures(summary(4.76, busy_ns=10), 4.40e6)
    assert found == {"idle_frac": pytest.approx(1 - 4.40 / 4.76), "idle_source": "clean"}


@pytest.mark.parametrize(("latency_ms", "kernel_ns"), [(None, 4.4e6), (4.76, None)])
def test_without_a_clean_iteration_the_share_is_the_captures_and_says_so(latency_ms, kernel_ns):
    found = idle_figures(summary(latency_ms), kernel_ns)
    assert found == {"idle_frac": 0.61, "idle_source": "profiled"}


def test_without_gpu_times_nothing_is_said_of_idling():
    assert idle_figures({"latency_ms": {"median": 5.0}}, 4e6) == {}
    assert idle_of({}) is None


def test_kernels_that_overlap_give_bounds_and_not_one_figure():
    found = idle_figures(summary(10.0, busy_ns=6), 8e6)
    assert found["idle_frac"] == pytest.approx(0.2)
    assert found["idle_bounds"] == [pytest.approx(0.2), pytest.approx(1 - 0.8 * 0.6)]
    assert idle_of(found).waits is None


def test_profiled_kernels_that_outlast_the_clean_iteration_leave_the_profiled_share_as_bound():
    found = idle_figures(summary(2.0, profiled=0.4, busy_ns=10), 3e6)
    assert (found["idle_frac"], found["idle_bounds"]) == (0.0, [0.0, 0.4])


def test_a_clean_pass_that_waits_more_than_the_profiled_one_is_not_the_same_work():
    found = idle_figures(summary(10.0, profiled=0.2, busy_ns=10), 4e6)
    assert found["idle_bounds"] == [0.2, pytest.approx(0.6)]


def test_an_iteration_inside_another_is_a_part_of_it():
    nested = phases(
        ("step_0", 1, 100), ("step_0/iteration_0", 1, 50), ("step_0/iteration_1", 1, 50)
    )
    assert num_iterations(nested) == 1
    assert iteration_kernel_ns(nested) == 100


def test_a_range_inside_one_of_its_own_kind_is_a_part_of_it() -> None:
    paths = ["ProfilerStep#1", "ProfilerStep#1/iteration_0", "step 2/f", "step 2/f/g/f", "step 2/g"]

    assert at_path(paths, "iteration_*") == [True, False, False, False, False]
    assert at_path(paths, "f") == [False, False, True, False, False]


def test_an_iteration_whose_kernels_were_not_recorded_is_left_out():
    steps = phases(("ProfilerStep#1", 1, 0), ("ProfilerStep#2", 1, 90), ("ProfilerStep#3", 1, 110))
    assert num_iterations(steps) == 2
    assert iteration_kernel_ns(steps) == 100


def test_ranges_without_gpu_times_are_counted_all():
    steps = phases(("iteration_0", 1, None), ("iteration_1", 1, None))
    assert num_iterations(steps) == 2
    assert iteration_kernel_ns(steps) is None


def with_clean_pass(name: str, latency_ms: float):
    """Return a stored capture's view with this clean latency."""
    view = nsys_view(name)
    view.summary["latency_ms"] = {"median": latency_ms}
    kernel_ns = iteration_kernel_ns(view.phases)
    figures = idle_figures(view.summary, kernel_ns)
    return empty_view(
        run=view.run, summary={**view.summary, **figures, "iteration_kernel_ns": kernel_ns},
        primary_pass="nsys", kernels=view.kernels, phases=view.phases, gaps=view.gaps,
        api_calls=view.api_calls,
    )  # fmt: skip


def test_a_run_that_waits_under_the_profiler_alone_is_not_called_launch_bound():
    # 83 % idle under nsys; kernels of 0.437 ms in a clean iteration of 0.46 ms.
    found = run_verdict(with_clean_pass("decode_eager", 0.46))
    assert found.kind == VerdictKind.UNKNOWN
    assert not any("idles" in line for line in (found.headline, *found.evidence))
    assert any("95 % of an iteration of 0.46 ms" in line for line in found.evidence)
    assert any("83 % idle under nsys" in line for line in found.evidence)


def test_a_run_that_waits_in_the_clean_pass_too_is_launch_bound_by_that_share():
    found = run_verdict(with_clean_pass("decode_eager", 2.0))
    assert found.kind == VerdictKind.LAUNCH_BOUND
    assert "idles 78 % of an iteration of 2 ms" in found.headline
    idle_ns = sum(ns for name, ns in found.bar if name.startswith("idle"))
    assert idle_ns / sum(ns for _, ns in found.bar) == pytest.approx(0.7815, abs=1e-3)


def test_bounds_on_both_sides_of_the_limit_give_no_verdict():
    view = with_clean_pass("decode_eager", 0.40)  # kernels take 0.437 ms: not the same work
    found = run_verdict(view)
    assert found.kind == VerdictKind.UNKNOWN
    assert "between 0 % and 83 %" in found.headline


def step_view(idle_frac: float, count: int = 9):
    facts = {
        "source": "repetition", "evidence": "repetition of the launch sequence", "count": count,
        "num_excluded": 1, "idle_frac": idle_frac, "period_ns": 8e6, "num_launches": 372,
        "gaps": [{"cause": "launch", "total_ns": 7e6}],
    }  # fmt: skip
    summary = {"idle_frac": 0.985, "idle_source": "profiled", "profiled_idle_frac": 0.985}
    return empty_view(summary=summary, by_step=StepView(facts=facts))


def test_start_up_in_the_capture_is_no_idle_time_of_a_step() -> None:
    idle = idle_of_run(step_view(0.6))

    assert (idle.frac, idle.is_of_steps, idle.profiled_frac) == (0.6, True, 0.985)


def test_the_steps_decide_even_where_they_say_nearly_the_same() -> None:
    assert idle_of_run(step_view(0.98, 9)).frac == 0.98


def test_too_few_steps_change_nothing() -> None:
    assert idle_of_run(step_view(0.6, 2)).frac == 0.985


def test_the_verdicts_facts_are_those_of_a_step_then() -> None:
    view = step_view(0.6)

    assert idle_causes(view) == {"launch": 7_000_000}
    assert launches_per_iteration(view) == "372 launches a step"
    assert idle_basis(view).startswith("median of 8 steps found by repetition")
