"""Read `--set name=value[,value]`, which several commands take."""

from collections.abc import Sequence

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


def parse_sweep(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return name -> choices of `--set name=a,b`; a value that starts with `[` or `{` is whole."""
    found: dict[str, tuple[str, ...]] = {}
    for name, text in parse_assignments(texts).items():
        parts = (text,) if text[0] in "[{" else tuple(p.strip() for p in text.split(","))
        if not all(parts):
            raise UserError(f"--set {name}={text}: a value between commas is empty")
        found[name] = tuple(dict.fromkeys(parts))
    return found
