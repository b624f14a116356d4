"""What a check found, as `doctor` and the worker's probe tell it."""

from typing import Any


def finding(name: str, found: str, fix: str = "", *, needed_for: str) -> dict[str, Any]:
    """Return one check as a document; a fix makes it a fault."""
    return {
        "name": name,
        "is_ok": not fix,
        "found": " ".join(found.split()),
        "fix": fix,
        "needed_for": needed_for,
    }
