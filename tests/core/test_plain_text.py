"""Texts of others: cut, and never a formula."""

import json

import pytest

from core.plain_text import cut, inert, is_formula, visible


@pytest.mark.parametrize(
    "text",
    [
        "=HYPERLINK(1)",
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "-A1",
        "@SUM(1)",
        "\uff1d1+1",
        "\uff0b1",
        "\uff20x",
        "\u22121+1",
        "\n=1",
        "\ttext",
        "\r=1",
        " =1",
        "\u200b=1",
        "\ufeff=1",
        "-",
        "--x",
    ],
)
def test_what_may_be_a_formula_is_seen(text: str) -> None:
    assert is_formula(text)


@pytest.mark.parametrize(
    "text",
    ["", "a=1", "-12.3 %", "+4.5 ms", "-1e-05", "\u22123.1\u00a0%", "+1\u202f024 GB/s", "x\n=1"],
)
def test_numbers_with_units_and_plain_texts_are_none(text: str) -> None:
    assert not is_formula(text)


def test_long_texts_are_cut() -> None:
    assert cut("x" * 1_000_000) == "x" * 299 + "\u2026"
    assert cut("short") == "short"


@pytest.mark.parametrize(
    "text", ["plain", "a\tb\nc\r\n", "\u00e9\u4e2d\U0001f600 \u05d0", "\\u202e"]
)
def test_what_everybody_writes_stays(text: str) -> None:
    assert inert(text) == visible(text) == text


@pytest.mark.parametrize(
    "sign",
    ["\x1b", "\x9b", "\x07", "\x00", "\x7f", "\r", "\u202e", "\u2066", "\u2028", "\U000e0041"],
)
def test_a_sign_that_steers_is_shown_by_its_number(sign: str) -> None:
    shown = inert(f"a{sign}b")
    assert sign not in shown
    assert json.loads(f'"{shown}"') == f"a{sign}b"


def test_signs_without_width_are_seen_where_texts_are_compared() -> None:
    assert visible("a\u200bb\ufeff") == "a\\u200bb\\ufeff"
    assert inert("a\u2060b") == "a\u2060b"
