"""What a memory snapshot says twice: totals of segments, and the same fields in like records."""

from collections.abc import Mapping, Sequence
from typing import Any

LIVE = frozenset({"active_allocated", "active_pending_free", "active_awaiting_free"})
"""States of blocks that hold memory in use."""


def contradictions(
    events: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return what is odd, one sentence each; KeyError or TypeError where fields are missing."""
    return [*_totals(segments), *_fields(events, segments)]


def _totals(segments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Compare the totals that each segment states with its own blocks."""
    bad = 0
    for segment in segments:
        blocks = segment["blocks"]
        live = [b for b in blocks if b["state"] in LIVE]
        active = sum(b["size"] for b in live)
        asked = sum(b.get("requested_size", 0) for b in live)
        bad += (
            sum(b["size"] for b in blocks) != segment["total_size"]
            or active != segment.get("active_size", active)
            or asked != segment.get("requested_size", asked)
        )
    return [f"{bad} segments do not add up to the totals they state."] if bad else []


def _fields(
    events: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]]
) -> list[str]:
    """PyTorch gives all records of a kind the same fields."""
    seen: dict[str, set[frozenset[Any]]] = {}
    for event in events:
        seen.setdefault(str(event["action"]), set()).add(frozenset(event))
    for segment in segments:
        seen.setdefault("segment", set()).add(frozenset(segment))
        for block in segment["blocks"]:
            seen.setdefault("block", set()).add(frozenset(block))
    uneven = sorted(kind[:40] for kind, fields in seen.items() if len(fields) > 1)
    return [f"records of one kind have different fields: {', '.join(uneven)}."] if uneven else []
