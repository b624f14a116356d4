"""Numbers as digits: significant ones, and never in scientific notation; values of params."""

import json
import math
from typing import Any


def decimal(value: float, digits: int = 4, *, signed: bool = False) -> str:
    """Return a number with that many significant digits, whole numbers whole, no zeros at the end.

    Python's own `g` writes 16953 as 1.695e+04 and 0.0000167 as 1.67e-05.
    """
    sign = "+" if signed else ""
    if not math.isfinite(value) or value == 0:
        return f"{value:{sign}.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:{sign}.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def value_text(value: Any) -> str:
    """Return a param's value as people write it: `true`, `8` for 8.0."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def listed_texts(value: object) -> list[str]:
    """Return the texts of a JSON list, none of anything else: a bundle's job may hold anything."""
    try:
        texts = json.loads(str(value or "[]"))
    except (ValueError, RecursionError):
        return []
    is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    return texts if is_list else []
