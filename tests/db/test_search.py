"""The filter language of runs."""

from collections.abc import Callable

import pytest
from sqlite_utils import Database

from db.lifecycle import transition
from db.runs import count_runs, list_runs, pin, set_tags, unknown_fields
from db.search import QuerySyntaxError, compile_query, parse_query


@pytest.fixture
def runs(db: Database, make_run: Callable[..., str]) -> dict[str, str]:
    """Three runs: eager and compiled on a 4090 with latencies of 4 and 2.5 ms, one on a CPU."""
    ids = {
        "eager": make_run("eager 50%", gpu="NVIDIA GeForce RTX 4090", compile="none", layers=2),
        "compiled": make_run(
            "compiled", gpu="NVIDIA GeForce RTX 4090", compile="default", layers=12
        ),
        "cpu": make_run("on cpu", compile="none", rope=True),
    }
    for name, latency_ms in (("eager", 4.0), ("compiled", 2.5)):
        db.table("runs").update(ids[name], {"latency_ms": latency_ms, "gemm_frac": 0.8})
    set_tags(db, ids["compiled"], ["paper"])
    return ids


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"eager", "compiled", "cpu"}),
        ("gpu:4090", {"eager", "compiled"}),
        ("gpu:4090 compile:none", {"eager"}),
        ("compile:none,default -gpu:4090", {"cpu"}),
        ("latency<3", {"compiled"}),
        ("latency>=2500us latency<=4ms", {"eager", "compiled"}),
        ("-latency<3", {"eager", "cpu"}),
        ("gemm>79%", {"eager", "compiled"}),
        ("tag:paper", {"compiled"}),
        ("-tag:paper", {"eager", "cpu"}),
        ("layers>=12", {"compiled"}),
        ("layers:2", {"eager"}),
        ("rope:true", {"cpu"}),
        ("status:queued workload:decode source:submitted", {"eager", "compiled", "cpu"}),
        ("created>2020-01 created<2999", {"eager", "compiled", "cpu"}),
        ("created:1999", set()),
        ('"eager 50%"', {"eager"}),
        ("50%", {"eager"}),
        ("_", set()),
        ('"<3"', set()),
        ("name:CPU", {"cpu"}),
        ("baseline:false", {"eager", "compiled", "cpu"}),
    ],
)
def test_filter_finds(db: Database, runs: dict[str, str], query: str, expected: set[str]) -> None:
    names = {run_id: name for name, run_id in runs.items()}

    found = {names[run_id] for run_id in list_runs(db, query)["id"]}

    assert found == expected
    assert count_runs(db, query) == len(expected)


@pytest.mark.parametrize(
    ("query", "position", "word"),
    [
        ("latency<fast", 0, "not a number"),
        ("gpu:4090 latency<3kg", 9, "units"),
        ("tag:", 4, "needs a value"),
        ('name:"open', 5, "not closed"),
        ('"open', 0, "not closed"),
        ("gpu<4090", 0, "is text"),
        ("latency<1,2", 8, "one value"),
        ("gpu:4090 latency < 3", 17, "without blanks"),
        (":4090", 0, "quotation marks"),
        ("compile!=none", 0, "-FIELD:VALUE"),
        ("x " * 400 + "y", 800, "at most 400 conditions"),
        ("gpu:H100 id:" + ",".join(map(str, range(400))), 9, "at most 400 conditions"),
    ],
)
def test_wrong_filter_names_the_place(query: str, position: int, word: str) -> None:
    with pytest.raises(QuerySyntaxError, match=word) as caught:
        compile_query(query)

    assert caught.value.position == position
    assert f"character {position + 1}" in str(caught.value)


def test_a_filter_of_as_many_conditions_as_allowed_is_answered(
    db: Database, runs: dict[str, str]
) -> None:
    assert len(list_runs(db, "-tag:none " * 400)) == 3
    assert len(list_runs(db, "layers:" + ",".join(map(str, range(400))))) == 2


def test_pinned_run_is_found_as_baseline(db: Database, runs: dict[str, str]) -> None:
    transition(db, runs["eager"], "claimed")
    transition(db, runs["eager"], "running")
    transition(db, runs["eager"], "ingesting")
    transition(db, runs["eager"], "done")
    pin(db, runs["eager"])

    assert list_runs(db, "baseline:true")["id"].tolist() == [runs["eager"]]


def test_a_field_that_no_run_has_is_named(db: Database, runs: dict[str, str]) -> None:
    assert unknown_fields(db, "stauts:done compile:none") == ("stauts",)


def test_any_text_is_a_filter_or_a_syntax_error() -> None:
    from hypothesis import given, strategies

    @given(strategies.text(max_size=60))
    def check(text: str) -> None:
        try:
            clause = compile_query(text)
        except QuerySyntaxError:
            return
        assert clause.sql.count("?") == len(clause.params)

    check()


def test_terms_cover_the_text_in_order() -> None:
    from hypothesis import given, strategies

    @given(strategies.text(alphabet='ab:<>-,"=. \\%', max_size=30))
    def check(text: str) -> None:
        try:
            terms = parse_query(text)
        except QuerySyntaxError:
            return
        assert [t.position for t in terms] == sorted({t.position for t in terms})

    check()
