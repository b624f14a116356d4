"""Whole comparisons: sides, metrics, order in time, marks, and the document they become."""

import json

import pytest

from analysis.compare.engine import compare
from analysis.compare.gate import gate
from core.errors import UserError
from tests.analysis.compare.views import build_view

QUIET = tuple(tuple(2.0 + 0.001 * (p + i % 3) for i in range(20)) for p in range(5))
SLOW = tuple(tuple(1.2 * ms for ms in process) for process in QUIET)
COMPILED = {"compile": "default", "context": 512}


def test_processes_of_one_run_are_the_groups() -> None:
    found = compare([build_view(QUIET)], [build_view(SLOW, params=COMPILED)])

    assert found.verdict == "slower"
    assert (found.a.n_processes, found.a.n_samples) == (5, 100)
    assert found.a.median == pytest.approx(2.003)
    assert found.ratio == pytest.approx(1.2)
    assert found.unit == "ms"


def test_runs_of_one_process_each_are_the_groups() -> None:
    a = [build_view((p,), id=f"a{i}") for i, p in enumerate(QUIET)]
    b = [build_view((p,), id=f"b{i}") for i, p in enumerate(SLOW)]

    found = compare(a, b)

    assert found.verdict == "slower"
    assert found.a.n_processes == 5
    assert found.a.run_ids == ("a0", "a1", "a2", "a3", "a4")


def test_many_runs_of_many_processes_count_as_runs() -> None:
    a = [build_view(QUIET, id=f"a{i}") for i in range(4)]

    found = compare(a, a)

    assert (found.a.group, found.a.n_processes, found.a.n_samples) == ("run", 4, 400)


def test_different_sizes_are_not_comparable_and_the_ratio_is_still_told() -> None:
    found = compare([build_view(QUIET)], [build_view(SLOW, params={"context": 1024})])

    assert found.verdict == "not_comparable"
    assert not found.comparable
    assert "context 512 -> 1024" in found.reason
    assert found.ratio == pytest.approx(1.2)


@pytest.mark.parametrize("measured", [QUIET, ()])
def test_an_out_of_memory_side_says_so(measured: tuple[tuple[float, ...], ...]) -> None:
    lost = build_view(id="lost", status="oom", params=COMPILED)

    for found in (compare([build_view(measured)], [lost]), compare([lost], [build_view(measured)])):
        assert found.verdict == "not_enough_samples" and found.ratio is None
        assert "ran out of memory" in found.reason


def test_a_run_against_itself_is_said_to_be_the_same() -> None:
    one = [build_view(QUIET)]

    found = compare(one, one)

    assert found.ratio == 1 and found.verdict in ("no_difference", "not_enough_samples")
    assert found.reason.startswith("both sides are the same")
    assert found.next_step == "choose another run for one side"


def test_an_unknown_metric_names_those_there_are() -> None:
    with pytest.raises(UserError, match="available: latency, peak_memory"):
        views = [build_view(QUIET, summary={"peak_memory_bytes": 5})]
        compare(views, views, metric="speed")


def test_no_run_on_a_side_is_the_users_error() -> None:
    with pytest.raises(UserError, match="side B names no run"):
        compare([build_view(QUIET)], [])


def test_blocks_in_time_are_marked_and_drift_is_not_called_a_change() -> None:
    drifting = [tuple(2.0 + 0.02 * p + 0.001 * (i % 3) for i in range(20)) for p in range(10)]
    times = {"started_at": "2026-11-27T10:00:00", "finished_at": "2026-11-27T10:05:00"}
    later = {"started_at": "2026-11-27T10:06:00", "finished_at": "2026-11-27T10:11:00"}

    found = compare(
        [build_view(tuple(drifting[:5]), **times)], [build_view(tuple(drifting[5:]), **later)]
    )

    assert found.verdict == "not_enough_samples"
    assert "drift" in found.reason
    assert "block_order" in {m.code for m in found.marks}


def test_outliers_and_a_slow_start_are_marked_and_kept() -> None:
    process = (4.0, 3.9, 3.8, 3.5, 3.4) + (2.0,) * 20 + (9.0,)

    found = compare([build_view((process,))], [build_view((process,))])

    assert {m.code for m in found.marks} == {"drift", "outliers"}
    assert found.a.n_samples == 26


def test_the_document_is_json_and_has_the_contracts_keys() -> None:
    document = compare([build_view(QUIET)], [build_view(SLOW, params=COMPILED)]).as_dict()

    assert json.loads(json.dumps(document)) == document
    wanted = "comparable differs metric verdict reason ratio ci95 a b waterfall kernels"
    assert set(wanted.split()) <= set(document)
    assert {"n_processes", "n_samples", "median"} <= set(document["a"])


@pytest.mark.parametrize(("limit_pct", "is_regression"), [(5.0, True), (19.0, True), (25.0, False)])
def test_the_gate_fails_only_above_its_limit(limit_pct: float, is_regression: bool) -> None:
    found = compare([build_view(QUIET)], [build_view(SLOW, params=COMPILED)])

    assert (gate(found, limit_pct).answer == "regression") is is_regression


def test_the_gate_passes_what_is_faster_and_says_what_it_cannot_decide() -> None:
    faster = compare([build_view(SLOW)], [build_view(QUIET, params=COMPILED)])
    uncertain = compare([build_view(QUIET[:1])], [build_view(SLOW[:1], params=COMPILED)])
    other = compare([build_view(QUIET)], [build_view(SLOW, params={"context": 1024})])

    answers = [gate(c, 0.0) for c in (faster, uncertain, other)]

    assert [a.answer for a in answers] == ["passed", "undecided", "undecided"]
    assert all(a.reason.startswith("could not decide") for a in answers[1:])


def test_a_rate_is_better_when_higher() -> None:
    def rates(value: float, run_id: str):
        import pandas as pd

        row = ("clean", "", "tokens_per_s", value, "tokens/s")
        frame = pd.DataFrame([row], columns=["pass", "phase", "name", "value", "unit"])
        return build_view(id=run_id, metrics=frame)

    a = [rates(100.0 + i / 10, f"a{i}") for i in range(5)]
    b = [rates(80.0 + i / 10, f"b{i}") for i in range(5)]

    found = compare(a, b, metric="tokens_per_s")

    assert found.verdict == "slower"
    assert gate(found, 20.0).answer == "regression"
    assert gate(found, 30.0).answer == "passed"
