"""Intervals in plain Python, sorted: a second way to every time that ranks and gaps are given."""


def union(intervals: list[tuple[int, int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def common_ns(a: list[list[int]], b: list[list[int]]) -> int:
    total = i = j = 0
    while i < len(a) and j < len(b):
        total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


def length_ns(merged: list[list[int]]) -> int:
    return sum(end - start for start, end in merged)
