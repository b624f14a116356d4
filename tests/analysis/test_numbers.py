"""One token can be two numbers; the file around it decides, or nobody does."""

import math

import pytest

from analysis.numbers import (
    AmbiguousNumberError,
    NumberStyle,
    candidate_styles,
    parse_number,
    parsed,
)


@pytest.mark.parametrize(
    "tokens",
    [
        ["6.23", "567961", "431.65"],
        ["6.23", "567,961", "431.65"],
        ["6,23", "567.961", "431,65"],
        ["6,23", "567 961", "431,65"],
        ["6,23", "567\u202f961", "431,65"],
        ["6,23", "567\u00a0961", "431,65"],
        ["6.23", "567'961", "431.65"],
        ["6.23", "567\u2019961", "431.65"],
        ["6.23", "5,67,961", "431.65"],
    ],
)
def test_every_locale_gives_the_same_values(tokens: list[str]) -> None:
    (style,) = candidate_styles(tokens)
    assert [parse_number(t, style) for t in tokens] == [6.23, 567961.0, 431.65]


@pytest.mark.parametrize("tokens", [["567.961"], ["567,961", "12", "n/a"], ["1.234", "9.876"]])
def test_undecided_tokens_fit_both_styles(tokens: list[str]) -> None:
    assert {s.decimal for s in candidate_styles(tokens)} == {".", ","}


def test_tokens_of_two_styles_are_refused() -> None:
    with pytest.raises(AmbiguousNumberError, match="two styles"):
        candidate_styles(["6.23", "6,23"])


def test_several_groups_decide() -> None:
    assert candidate_styles(["1.234.567", "1.234"]) == (NumberStyle(decimal=",", group="."),)


@pytest.mark.parametrize(
    ("token", "value"),
    [("1_000", 1000.0), ("1_000.5", 1000.5), ("1_000_000", 1e6), ("-1'000", -1e3)],
)
def test_an_underscore_groups_thousands_as_in_python(token: str, value: float) -> None:
    (style,) = candidate_styles([token, "999"])

    assert parse_number(token, style) == value


@pytest.mark.parametrize(
    "token", ["1_00", "10_00", "1__000", "1_000_", "0_001", "00_100", "0'001", "000 100", "1_2_345"]
)
def test_marks_where_no_thousands_end_make_no_number(token: str) -> None:
    (style,) = candidate_styles([token])

    with pytest.raises(ValueError, match="does not fit"):
        parse_number(token, style)


@pytest.mark.parametrize("token", ["12,34", "1,2345", "1.2.3", "abc", "1 234"])
def test_a_token_that_breaks_the_style_is_no_number(token: str) -> None:
    with pytest.raises(ValueError):
        parse_number(token, NumberStyle(decimal=".", group=","))


@pytest.mark.parametrize("token", ["", "n/a", "nan", "inf"])
def test_missing_is_not_zero(token: str) -> None:
    assert math.isnan(parse_number(token, NumberStyle(decimal=".")))


def test_exponents_and_signs() -> None:
    style = NumberStyle(decimal=".")
    assert parse_number("-1.5e-3", style) == -0.0015
    assert parse_number("2E6", style) == 2e6


def test_parsed_tells_values_from_missing_broken_and_other_tokens() -> None:
    found = parsed(["1,234.5", "n/a", "1.2.3", "Tesla", "7"], NumberStyle(decimal=".", group=","))
    assert found["1,234.5"] == 1234.5
    assert found["7"] == 7.0
    assert math.isnan(found["n/a"])
    assert "does not fit" in str(found["1.2.3"])
    assert "Tesla" not in found
