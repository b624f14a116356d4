"""What a block of memory is for: its role, from when it was allocated and when it was freed.

    parameters        before the recording, or while the model is built
    optimizer state   in the optimizer's step, and kept after it
    gradients         in the backward pass, and kept after it
    activations       in the forward pass, for the backward pass or for later layers
    workspace         freed in the phase that allocated it

Blocks from before the recording have no stack as a rule: as many of a size as there are gradients
of that size are parameters, and the others state of the optimizer; a third where their number is
three times as many, since Adam keeps two tensors a parameter. Blocks that the history loses sight
of before it ends are taken as kept.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from analysis.readers.memory.sites import UNKNOWN_SITE

PARAMETERS, STATE, GRADIENTS = "parameters", "optimizer state", "gradients"
ACTIVATIONS, WORKSPACE = "activations", "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One live block: what was asked for, where, in which phase, and in which it was freed."""

    size: int
    site: str
    phase: str | None
    is_earlier: bool = False
    "From before the recording."
    is_of_optimizer: bool = False
    "Its stack is the optimizer's."
    is_building: bool = False
    "Allocated before the first phase, and never freed."
    freed_in: str | None = None
    "Kind of phase (`kind_of_phase`); None where it lives to the end."
    role: str | None = None


@lru_cache(maxsize=1 << 10)
def kind_of_phase(phase: str | None) -> str | None:
    """Return forward, backward or optimizer, from the first part of a phase's name that says it."""
    for part in (phase or "").lower().split("/"):
        for kind, words in _KINDS.items():
            if any(word in part for word in words):
                return kind
    return None


_KINDS: Mapping[str, Sequence[str]] = {
    "backward": ("backward",),
    "optimizer": ("optimizer", "optim.", "zero_grad"),
    "forward": ("forward", "loss", "prefill", "decode", "generate"),
}


def kinds_over_time(phases: Sequence[str | None]) -> list[str | None]:
    """Return the kind of phase at each event, carried forward where an event has none.

    Frees have no stack, so most of those in a backward pass have none of their own.
    """
    kinds: list[str | None] = []
    last = None
    for phase in phases:
        last = kind_of_phase(phase) or last
        kinds.append(last)
    return kinds


def with_roles(
    blocks: Sequence[Block], gradients: Counter[int], *, is_whole_step: bool = True
) -> list[Block]:
    """Return the blocks with their roles; `gradients`: sizes of all that a step has.

    Without gradients the program is taken for inference, whose earlier blocks are parameters,
    unless the recording ended in the middle of a step.
    """
    is_unnamed = [b.is_earlier and b.site == UNKNOWN_SITE for b in blocks]
    counts = Counter(b.size for b, unnamed in zip(blocks, is_unnamed, strict=True) if unnamed)
    left = {size: _num_parameters(n, gradients[size]) for size, n in counts.items()}
    assigned = []
    for block, unnamed in zip(blocks, is_unnamed, strict=True):
        role = _role(block, has_backward=bool(gradients))
        if unnamed and not gradients and not is_whole_step:
            role = None
        elif unnamed and gradients:
            role = PARAMETERS if left[block.size] > 0 else STATE
            role = role if gradients[block.size] else None  # a buffer, or a batch of data
            left[block.size] -= 1
        assigned.append(replace(block, role=role))
    return assigned


def _num_parameters(num_blocks: int, num_gradients: int) -> int:
    """Return how many blocks of one size are parameters.

    More gradients may be alive at once than there are parameters: a tied weight has two.
    """
    if num_blocks % _ADAM == 0 and num_gradients >= num_blocks // _ADAM:
        return num_blocks // _ADAM if num_gradients < num_blocks else num_blocks
    return min(num_blocks, num_gradients)


_ADAM = 3
"""Tensors a parameter: itself and two moments."""


def _role(block: Block, *, has_backward: bool) -> str | None:
    kind = kind_of_phase(block.phase)
    if block.is_of_optimizer:
        return WORKSPACE if block.freed_in == "optimizer" else STATE
    if block.is_earlier or block.is_building:
        return PARAMETERS
    if kind == "optimizer":
        return WORKSPACE if block.freed_in == kind else STATE
    if kind == "backward":
        return WORKSPACE if block.freed_in == kind else GRADIENTS
    if kind == "forward":
        return WORKSPACE if has_backward and block.freed_in == kind else ACTIVATIONS
    return None


def gradient_sizes(
    events: Sequence[Mapping[str, Any]], phases: Sequence[str | None]
) -> Counter[int]:
    """Return how many blocks of each size one step's gradients have: the most alive at once."""
    born: dict[int, tuple[int, str | None]] = {}
    kept: list[tuple[int, int, int]] = []
    now = kinds_over_time(phases)
    for index, (event, phase) in enumerate(zip(events, phases, strict=True)):
        if event["action"] == "alloc":
            born[event["addr"]] = (index, kind_of_phase(phase))
        elif event["action"] == "free_completed" and event["addr"] in born:
            start, kind = born.pop(event["addr"])
            if kind == "backward" and now[index] != "backward":
                kept.append((start, index, event["size"]))
    alive = [(i, events[i]["size"]) for i, kind in born.values() if kind == "backward"]
    return _most_at_once([*kept, *((i, len(events), size) for i, size in alive)])


def _most_at_once(spans: Sequence[tuple[int, int, int]]) -> Counter[int]:
    changes = sorted(
        [(s, 1, size) for s, _, size in spans] + [(e, -1, size) for _, e, size in spans]
    )
    now: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for _, step, size in changes:
        now[size] += step
        most[size] = max(most[size], now[size])
    return most
