"""Replay one device's allocator history backwards-anchored: the final live set gives the baseline.

Replaying from an empty set gives a curve that is too low by whatever was allocated before the
recording. The live set at the end is known exactly, so baseline = final live bytes - net change of
the history. Memory stays busy from `alloc` to `free_completed`; `free_requested` changes nothing.

What a snapshot says twice (totals of segments, the same fields in like records) is checked first.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.readers.memory.roles import (
    Block,
    gradient_sizes,
    kind_of_phase,
    kinds_over_time,
    with_roles,
)
from analysis.readers.memory.sites import (
    EARLIER,
    UNKNOWN_SITE,
    PhaseFinder,
    is_optimizer_stack,
    site_of_stack,
)

LIVE = frozenset({"active_allocated", "active_pending_free", "active_awaiting_free"})
"""States of blocks that hold memory in use."""


def contradictions(
    events: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return inconsistencies, one sentence each; KeyError or TypeError for missing fields."""
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
    return [f"{bad} segments do not add up to their stated totals."] if bad else []


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


Point = tuple[int, int, int, int | None, str | None, int]
"""time_ns, device, allocated_bytes, reserved_bytes, phase, requested_bytes."""

AtPeak = tuple[int, str, str | None, str | None, int, int]
"""device, site, phase, role, bytes, count."""

_ALLOCATED = {"alloc": 1, "free_completed": -1}
_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_NEUTRAL = frozenset({"free_requested", "oom", "snapshot", "workspace_snapshot", "user_defined"})
_MAX_BYTES = 1 << 56
_MIN_BLOCK_BYTES = 512
"""PyTorch's caching allocator rounds what is asked for up to a multiple of this."""


@dataclass(slots=True, kw_only=True)
class DeviceHistory:
    """What the replay of one device found; peak and baseline are None without a history."""

    device: int
    num_events: int
    final_bytes: int
    final_reserved_bytes: int
    baseline_bytes: int | None = None
    peak_bytes: int | None = None
    peak_time_ns: int | None = None
    final_allocated_bytes: int = 0
    "The live blocks at the end as the allocator counts them: rounded up, or left whole."
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_phase: str | None = EARLIER
    "Phase of the allocation that made the peak."
    is_partial: bool = False
    oom: dict[str, Any] | None = None
    points: list[Point] = field(default_factory=list)
    at_peak: list[AtPeak] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)


def replay(
    device: int,
    events: Sequence[Mapping[str, Any]],
    segments: Sequence[Mapping[str, Any]],
    finder: PhaseFinder,
    *,
    is_recorded: bool,
) -> DeviceHistory:
    """Return the curve and the peak of one device.

    `is_recorded`: the snapshot has a history; a device without events then was not active.
    Raises KeyError, TypeError or ValueError for records that are not as PyTorch writes them.
    """
    live = _live_blocks(segments)
    reserved = sum(_size(s["total_size"], "total_size") for s in segments)
    history = DeviceHistory(
        device=device,
        num_events=len(events),
        final_bytes=sum(size for size, _ in live.values()),
        final_reserved_bytes=reserved,
        final_allocated_bytes=sum(_block_sizes(segments).values()),
    )
    if events:
        for text in contradictions(events, segments):
            history.warnings.append(("inconsistent_snapshot", text))
        _walk(history, events, finder, _event_sizes(events, _block_sizes(segments)))
    elif is_recorded:
        history.baseline_bytes = history.peak_bytes = history.final_bytes
        history.peak_allocated_bytes = history.final_allocated_bytes
        history.peak_reserved_bytes = reserved
    if history.peak_bytes is not None:
        _live_at_peak(history, events, live)
    return history


def _size(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_BYTES:
        raise ValueError(f"`{name}` is {value!r}, not a number of bytes")
    return value


def _live_blocks(segments: Sequence[Mapping[str, Any]]) -> dict[int, tuple[int, Any]]:
    """Return size asked for and stack of each live block, by address."""
    live: dict[int, tuple[int, Any]] = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            here = block.get("address", address)
            address = here + _size(block["size"], "size")
            if block["state"] in LIVE:
                size = _size(block.get("requested_size", block["size"]), "requested_size")
                live[here] = (size, block.get("frames") or ())
            elif block["state"] != "inactive":
                raise ValueError(f"a block's `state` is {block['state']!r}")
    return live


def _block_sizes(segments: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return the size of each live block as the allocator counts it, by address."""
    sizes: dict[int, int] = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            here = block.get("address", address)
            address = here + block["size"]
            if block["state"] in LIVE:
                sizes[here] = block["size"]
    return sizes


def _event_sizes(events: Sequence[Mapping[str, Any]], final: Mapping[int, int]) -> list[int]:
    """Return the change of allocated bytes that each event makes.

    Events say what was asked for. A block that lives to the end states its size; of others it is
    the request, rounded up (a block that was left whole because little was left over is larger).
    """
    changes = [0] * len(events)
    allocated_at: dict[int, int] = {}
    for index, event in enumerate(events):
        size = -(-event.get("size", 0) // _MIN_BLOCK_BYTES) * _MIN_BLOCK_BYTES
        if event["action"] == "alloc":
            changes[index] = size
            allocated_at[event["addr"]] = index
        elif event["action"] == "free_completed":
            allocated_at.pop(event["addr"], None)
            changes[index] = -size
    for address, index in allocated_at.items():
        changes[index] = final.get(address, changes[index])
    return changes


def _walk(
    history: DeviceHistory,
    events: Sequence[Mapping[str, Any]],
    finder: PhaseFinder,
    changes: Sequence[int],
) -> None:
    net, net_reserved = _net(history, events)
    requested = history.final_bytes - net
    allocated = max(history.final_allocated_bytes - sum(changes), requested)
    reserved: int = history.final_reserved_bytes - net_reserved
    history.baseline_bytes = history.peak_bytes = lowest = requested
    most_allocated, most_reserved = allocated, reserved
    history.peak_time_ns = _time_ns(events[0], 0)
    for index, event in enumerate(events):
        action, phase = event["action"], finder.phase(event)
        size = event.get("size", 0)
        requested += _ALLOCATED.get(action, 0) * size
        allocated += changes[index]
        reserved += _RESERVED.get(action, 0) * size
        lowest = min(lowest, requested)
        most_allocated, most_reserved = max(most_allocated, allocated), max(most_reserved, reserved)
        time_ns = _time_ns(event, index)
        if requested > history.peak_bytes:
            history.peak_bytes, history.peak_time_ns = requested, time_ns
            history.peak_phase = phase
        if action == "oom":
            history.oom = history.oom or _oom(event, phase, requested)
        elif action in _ALLOCATED or action in _RESERVED:
            known = reserved if reserved >= 0 else None
            point = (time_ns, history.device, allocated, known, phase, requested)
            history.points.append(point)
    history.peak_allocated_bytes = most_allocated
    history.peak_reserved_bytes = most_reserved if most_reserved >= most_allocated else None
    if lowest < 0:
        history.is_partial = True
        text = f"the history frees {-lowest} B more than was ever allocated: records are missing."
        history.warnings.append(("inconsistent_snapshot", text))


def _net(history: DeviceHistory, events: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    net = net_reserved = 0
    unknown: set[str] = set()
    for event in events:
        action = event["action"]
        if action in _ALLOCATED:
            net += _ALLOCATED[action] * _size(event["size"], "size")
        elif action in _RESERVED:
            net_reserved += _RESERVED[action] * _size(event["size"], "size")
        elif action not in _NEUTRAL:
            unknown.add(str(action)[:40])
    if max(abs(net), abs(net_reserved), history.final_bytes) >= _MAX_BYTES:
        raise ValueError("the sizes add up to more than any GPU has")
    if unknown:
        text = f"unknown actions were left out: {sorted(unknown)}."
        history.warnings.append(("unknown_memory_action", text))
    return net, net_reserved


def _time_ns(event: Mapping[str, Any], index: int) -> int:
    """Snapshots before PyTorch 2.2 have no timestamps: the order of events replaces them."""
    time_us = event.get("time_us", index)
    if not isinstance(time_us, int) or not 0 <= time_us < 1 << 53:
        raise ValueError(f"`time_us` is {time_us!r}, not a time")
    return time_us * 1000


def _oom(event: Mapping[str, Any], phase: str | None, requested: int) -> dict[str, Any]:
    oom = {
        "requested_bytes": _size(event["size"], "size"),
        "allocated_bytes": requested,
        "phase": phase,
        "site": site_of_stack(event.get("frames") or ()),
    }
    if isinstance(event.get("device_free"), int) and 0 <= event["device_free"] < _MAX_BYTES:
        oom["device_free_bytes"] = event["device_free"]
    return oom


def _live_at_peak(
    history: DeviceHistory,
    events: Sequence[Mapping[str, Any]],
    final: dict[int, tuple[int, Any]],
) -> None:
    """Fill `at_peak`, and warn if the history turns out to be incomplete."""
    before = _live_before(history, events, final)
    live: dict[int, Block] = {
        addr: Block(
            size=size,
            site=site_of_stack(frames) if frames else UNKNOWN_SITE,
            phase=EARLIER,
            is_earlier=True,
            is_of_optimizer=is_optimizer_stack(frames),
        )
        for addr, (size, frames) in before.items()
    }
    phases = _phases_of(history, events)
    last = _peak_index(history, events)
    is_building = True
    for event, phase in zip(events[: last + 1], phases, strict=False):
        is_building &= kind_of_phase(phase) is None
        if event["action"] == "alloc":
            frames = event.get("frames") or ()
            live[event["addr"]] = Block(
                size=event["size"],
                site=site_of_stack(frames),
                phase=phase,
                is_of_optimizer=is_optimizer_stack(frames),
                is_building=is_building,
            )
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    freed: dict[int, str | None] = {}
    kinds = kinds_over_time(phases)
    for event, kind in zip(events[last + 1 :], kinds[last + 1 :], strict=True):
        if event["action"] == "free_completed" and event["addr"] in live:
            freed.setdefault(event["addr"], kind)
    blocks = [
        replace(b, freed_in=freed.get(addr), is_building=b.is_building and addr not in freed)
        for addr, b in live.items()
    ]
    grouped: dict[tuple[str, str | None, str | None], list[int]] = defaultdict(list)
    gradients = gradient_sizes(events, phases)
    for block in with_roles(blocks, gradients, is_whole_step=history.oom is None):
        grouped[block.site, block.phase, block.role].append(block.size)
    rows = [(history.device, *key, sum(v), len(v)) for key, v in grouped.items()]
    history.at_peak = sorted(rows, key=lambda row: -row[4])
    _judge(history, rows)


def _phases_of(history: DeviceHistory, events: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return the phase of each event; those that change no memory have none."""
    points = iter(history.points)
    return [
        next(points)[4] if e["action"] in _ALLOCATED or e["action"] in _RESERVED else None
        for e in events
    ]


def _peak_index(history: DeviceHistory, events: Sequence[Mapping[str, Any]]) -> int:
    """Return the event that made the peak; -1 if the recording started at it."""
    level = history.baseline_bytes or 0
    if level == history.peak_bytes:
        return -1
    for index, event in enumerate(events):
        level += _ALLOCATED.get(event["action"], 0) * event.get("size", 0)
        if event["action"] in _ALLOCATED and level == history.peak_bytes:
            return index
    return len(events) - 1


def _live_before(
    history: DeviceHistory,
    events: Sequence[Mapping[str, Any]],
    final: dict[int, tuple[int, Any]],
) -> dict[int, tuple[int, Any]]:
    """Return the blocks live at the recording's start: freed or live, never allocated in it."""
    inside: dict[int, int] = {}
    before: dict[int, tuple[int, Any]] = {}
    seen: set[int] = set()
    num_unknown = unknown_bytes = num_odd = 0
    for event in events:
        if event["action"] == "alloc":
            num_odd += event["addr"] in inside
            inside[event["addr"]] = event["size"]
            seen.add(event["addr"])
        elif event["action"] == "free_completed":
            size = inside.pop(event["addr"], None)
            if size is None and event["addr"] not in seen:
                before[event["addr"]] = (event["size"], ())
                num_unknown, unknown_bytes = num_unknown + 1, unknown_bytes + event["size"]
            num_odd += size not in (None, event["size"]) or (size is None and event["addr"] in seen)
            seen.add(event["addr"])
    num_odd += sum(final.get(a, (None,))[0] != size for a, size in inside.items())
    for addr, entry in final.items():
        if addr not in inside:
            num_odd += addr in seen
            before[addr] = entry
    if num_unknown:
        history.is_partial = True
        text = (
            f"{num_unknown} frees ({unknown_bytes} B) are of memory allocated before the history "
            "begins or whose records were overwritten (max_entries): the history is partial. The "
            "curve is right, since it is anchored at the end; those blocks' sites are unknown."
        )
        history.warnings.append(("partial_history", text))
    if num_odd:
        history.is_partial = True
        text = f"{num_odd} allocations do not match their frees or the final blocks."
        history.warnings.append(("inconsistent_snapshot", text))
    return before


def _judge(history: DeviceHistory, rows: Sequence[AtPeak]) -> None:
    total = sum(row[4] for row in rows)
    if total != history.peak_bytes:
        text = f"{total} B can be told apart at the peak of {history.peak_bytes} B."
        history.warnings.append(("inconsistent_snapshot", text))
