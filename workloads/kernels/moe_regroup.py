"""Group routed tokens by expert with a counting sort: two passes over the ids, no comparison.

A comparison or radix sort of (expert, slot) pairs moves every key several times; there are few
experts, so counting is enough: (1) each program counts the experts of its slots and gives every
slot its rank among them, (2) each program adds up the counts, all of them and those of the programs
before it, and writes each slot to start + earlier + rank. Stable: slots of an expert keep their
order. The GPU needs less time for this than Python for the usual launch of a few kernels, so there
are two launches, one allocation and no look-up of what is compiled already.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_BLOCK = 256
MAX_EXPERTS = 512
MAX_PROGRAMS = 256
"""Each program of the second pass reads the counts of all: more slots are more blocks for each."""
TILE_VALUES = 16_384
"""Most values (slots x experts, or programs x experts) that one program holds at once."""
_WARPS = 8
_GENERAL = {
    "do_not_specialize": ["num_slots", "num_experts"],
    "do_not_specialize_on_alignment": ["ids", "work"],
}
_compiled: dict[tuple[Any, ...], Any] = {}


@triton.jit(**_GENERAL)
def count_kernel(ids, work, num_slots, num_experts, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    """Write each slot's rank among its program's slots of the same expert, and the counts."""
    program = tl.program_id(0)
    blocks = tl.cdiv(tl.cdiv(num_slots, BLOCK), tl.num_programs(0))
    ranks = work + num_slots + num_experts + 1
    counts = ranks + num_slots
    experts = tl.arange(0, EXPERTS)
    count = tl.zeros([EXPERTS], tl.int32)
    for block in range(program * blocks, (program + 1) * blocks):
        at = block * BLOCK + tl.arange(0, BLOCK)
        expert = tl.load(ids + at, mask=at < num_slots, other=-1).to(tl.int32)
        is_mine = (expert[:, None] == experts[None, :]).to(tl.int32)
        before = tl.cumsum(is_mine, 0) - is_mine + count[None, :]
        tl.store(ranks + at, tl.sum(before * is_mine, 1), mask=at < num_slots)
        count += tl.sum(is_mine, 0)
    tl.store(counts + program * num_experts + experts, count, mask=experts < num_experts)


@triton.jit(**_GENERAL)
def place_kernel(ids, work, num_slots, num_experts, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    """Write order[start of expert + slots of it in earlier programs + rank] = slot, and starts."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    blocks = tl.cdiv(tl.cdiv(num_slots, BLOCK), programs)
    starts = work + num_slots
    ranks = starts + num_experts + 1
    counts = ranks + num_slots
    experts = tl.arange(0, EXPERTS)
    total = tl.zeros([EXPERTS], tl.int32)
    earlier = tl.zeros([EXPERTS], tl.int32)
    for first in range(0, programs, BLOCK // 4):  # a quarter: registers for two programs a core
        row = first + tl.arange(0, BLOCK // 4)
        inside = (row[:, None] < programs) & (experts[None, :] < num_experts)
        part = tl.load(counts + row[:, None] * num_experts + experts[None, :], inside, other=0)
        total += tl.sum(part, 0)
        earlier += tl.sum(tl.where(row[:, None] < program, part, 0), 0)
    start = tl.cumsum(total, 0) - total
    first_free = start + earlier
    for block in range(program * blocks, (program + 1) * blocks):
        at = block * BLOCK + tl.arange(0, BLOCK)
        expert = tl.load(ids + at, mask=at < num_slots, other=-1).to(tl.int32)
        rank = tl.load(ranks + at, mask=at < num_slots, other=0)
        is_mine = expert[:, None] == experts[None, :]
        place = tl.sum(tl.where(is_mine, first_free[None, :], 0), 1) + rank
        tl.store(work + place, at, mask=at < num_slots)
    if program == 0:
        tl.store(starts + experts, start, mask=experts < num_experts)
        tl.store(starts + num_experts, num_slots)


def _launch(kernel: Any, programs: int, key: tuple[Any, ...], *args: Any) -> None:
    """Launch; after the first time, straight from the compiled kernel (none if interpreted).

    The kernels are not specialised to values or alignment: `key` says all that they depend on.
    """
    compiled = _compiled.get((kernel, *key))
    if compiled is None:
        _compiled[kernel, *key] = kernel[(programs,)](*args, num_warps=_WARPS)
    else:
        compiled[programs, 1, 1](*args)


def regroup(ids: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """Return (order, starts) of the slots of `ids` (any integer dtype, flattened).

    `order` [slots] int32 lists the slots expert by expert; those of expert e are
    order[starts[e]:starts[e + 1]]. Both are views of one buffer. Raises ValueError for more than
    512 experts. Ids must be in 0..num_experts - 1.
    """
    if not 1 <= num_experts <= MAX_EXPERTS:
        raise ValueError(f"{num_experts} experts are not in 1..{MAX_EXPERTS}")
    ids = ids.contiguous()
    num_slots = ids.numel()
    width = triton.next_power_of_2(num_experts)
    block = min(MAX_BLOCK, TILE_VALUES // width)
    num_blocks = max(1, -(-num_slots // block))
    programs = -(-num_blocks // -(-num_blocks // MAX_PROGRAMS))
    sizes = [num_slots, num_experts + 1, num_slots + programs * num_experts]
    work = torch.empty(sum(sizes), device=ids.device, dtype=torch.int32)
    key = (ids.device.index, ids.dtype, width, block)
    _launch(count_kernel, programs, key, ids, work, num_slots, num_experts, width, block)
    _launch(place_kernel, programs, key, ids, work, num_slots, num_experts, width, block)
    order, starts, _ = work.split(sizes)
    return order, starts
