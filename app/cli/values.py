"""Read `--set k=v[,v]` and the other values that several commands take."""

import json
from collections.abc import Sequence
from typing import Any

from core.errors import UserError


def parse_assignments(texts: Sequence[str]) -> dict[str, str]:
    """Return name -> text of `--set name=text`; UserError for one without `=` or given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        name = name.strip()
        if not mark or not name or not value.strip():
            raise UserError(f"--set {text!r}: write it as NAME=VALUE")
        if name in found:
            raise UserError(f"--set {name} is given twice; write {name}={found[name]},{value}")
        found[name] = value.strip()
    return found


def scalar(text: str) -> Any:
    """Return a number or truth value when the text is one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool) else text
