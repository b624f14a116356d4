"""Thin a memory curve for drawing without losing its extremes."""

MAX_POINTS = 5000
Point = tuple[int, int, int, int | None, str | None, int]
"""time_ns, device, allocated_bytes, reserved_bytes, phase, requested_bytes."""


def thin(points: list[Point], limit: int = MAX_POINTS) -> list[Point]:
    """Return at most `limit` points: the first, the last, and each bucket's extremes in order."""
    if len(points) <= limit:
        return points
    num_buckets = (limit - 2) // 4
    inner = points[1:-1]
    kept = [points[0]]
    for i in range(num_buckets):
        lo, hi = i * len(inner) // num_buckets, (i + 1) * len(inner) // num_buckets
        bucket = range(lo, hi)
        chosen = {
            min(bucket, key=lambda j: inner[j][2]),
            max(bucket, key=lambda j: inner[j][2]),
            min(bucket, key=lambda j: inner[j][3] or 0),
            max(bucket, key=lambda j: inner[j][3] or 0),
        }
        kept.extend(inner[j] for j in sorted(chosen))
    kept.append(points[-1])
    return kept
