"""Read a value given as text, for commands without a list of parameters."""

import json
from typing import Any


def scalar(text: str) -> Any:
    """Return a number or truth value when the text is one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool) else text
