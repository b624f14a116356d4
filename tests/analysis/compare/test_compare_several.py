"""More than two measurements: each against its partner, with a verdict of its own."""

import json

import pytest

from analysis.compare.engine import compare
from analysis.compare.gate import gate
from analysis.compare.records import Comparison
from tests.analysis.compare.views import build_view

QUIET = tuple(tuple(2.0 + 0.001 * (p + i % 3) for i in range(20)) for p in range(5))
BASE = {"compile": "none", "context": 512}


def run(run_id: str, factor: float, **params: object):
    samples = tuple(tuple(factor * ms for ms in process) for process in QUIET)
    return build_view(samples, id=run_id, name=run_id, params=BASE | params)


@pytest.fixture
def modes() -> Comparison:
    others = [
        run("default", 0.8, compile="default"),
        run("graphs", 1.2, compile="reduce-overhead"),
        run("longer", 1.5, context=1024),
    ]
    return compare([run("eager", 1.0)], others)


def test_each_measurement_has_its_own_ratio_and_verdict(modes: Comparison) -> None:
    told = {p.b.label: (round(p.ratio or 0, 3), p.verdict, p.what) for p in modes.pairs}

    assert told == {
        "default": (0.8, "faster", "compile none -> default"),
        "graphs": (1.2, "slower", "compile none -> reduce-overhead"),
        "longer": (1.5, "not_comparable", "context 512 -> 1024"),
    }
    assert all(p.ci95 and p.ci95[0] <= (p.ratio or 0) <= p.ci95[1] for p in modes.pairs)
    assert json.loads(json.dumps(modes.as_dict()))["pairs"][0]["verdict"] == "faster"


def test_two_sets_are_matched_measurement_by_measurement() -> None:
    a = [run("a512", 1.0), run("a1024", 2.0, context=1024)]
    b = [run("b1024", 2.4, compile="default", context=1024), run("b512", 1.0, compile="default")]

    pairs = compare(a, b).pairs

    assert [(p.a.label, p.b.label, p.verdict) for p in pairs] == [
        ("a1024", "b1024", "slower"),
        ("a512", "b512", "no_difference"),
    ]


def test_a_partner_differs_least_in_what_matters_not_in_what_a_side_does_not_know() -> None:
    a = [run("eager", 1.0), run("tuned", 0.5, compile="max-autotune")]
    a[0].run.environment.update({f"setting{n}": n for n in range(5)})

    pairs = compare(a, [run("longer", 2.0, context=1024), run("other", 2.0, layers=4)]).pairs

    assert {p.a.label for p in pairs} == {"eager"}


def test_repeats_of_one_measurement_are_one_row_and_nothing_is_held_against_itself() -> None:
    first = run("first", 1.0)
    others = [first, run("x1", 1.2, compile="default"), run("x2", 1.2, compile="default")]

    pairs = compare([first], others).pairs

    assert [(p.b.run_ids, p.b.n_processes) for p in pairs] == [(("x1", "x2"), 10)]


def test_one_measurement_on_each_side_has_no_pairs() -> None:
    assert compare([run("a", 1.0)], [run("b", 1.2, compile="default")]).pairs == ()


def test_the_gate_fails_when_one_of_several_got_worse(modes: Comparison) -> None:
    found = gate(modes, 5.0)

    assert found.answer == "regression"
    assert "latency of graphs: slower by 20.00 %" in found.reason
    assert "longer" not in found.reason
    assert gate(modes, 25.0).answer != "regression"
