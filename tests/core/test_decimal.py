"""Numbers are written as digits, wherever they are written."""

import re
from pathlib import Path

import pytest

from core.config import ROOT
from core.numbers import decimal

ROOMS = ("app", "analysis", "core", "worker", "db", "captures")
SCIENTIFIC = re.compile(r":[#+,]?(\{sign\})?[#+,]?(\.\d+)?~?[ge]\}|tickformat=\"[^\"]*[ge]\"")
"""A format of Python or of plotly that may write an exponent."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (16953.2, "16953"),
        (0.0000167, "0.0000167"),
        (9.99996, "10"),
        (0.5, "0.5"),
        (-1234567.0, "-1234567"),
        (0.0, "0"),
        (1.23456, "1.235"),
    ],
)
def test_a_number_has_four_significant_digits_and_no_exponent(value: float, text: str) -> None:
    assert decimal(value) == text


def test_a_signed_number_says_its_sign() -> None:
    assert (decimal(2.0, 3, signed=True), decimal(-2.5, 3, signed=True)) == ("+2", "-2.5")


@pytest.mark.parametrize("exponent", range(-12, 16))
def test_the_digits_are_the_number_to_within_its_last_one(exponent: int) -> None:
    value = 7.777777 * 10.0**exponent
    assert float(decimal(value, 4)) == pytest.approx(value, rel=5.1e-4)


def formats_of(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f"{path}: {line.strip()}" for line in lines if SCIENTIFIC.search(line)]


def test_no_format_of_the_product_may_write_an_exponent() -> None:
    sources = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]
    hits = [hit for path in sources for hit in formats_of(path)]
    assert hits == [], "write such numbers with core.numbers.decimal"
