"""Group routed tokens by expert with a counting sort: two passes over the ids, no comparison.

A comparison or radix sort of (expert, slot) pairs moves every key several times; there are few
experts, so counting is enough: (1) each block counts its experts and gives every slot its rank
within the block, (2) one program an expert turns its counts into offsets, (3) each slot is written
to offset + rank. Stable: slots of an expert keep their order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_BLOCK = 256
MAX_EXPERTS = 512
TILE_VALUES = 16_384
"""Most values (slots x experts) that one program holds at once."""


@triton.jit
def count_kernel(ids, ranks, counts, num_slots, num_blocks, num_experts,
                 EXPERTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Write each slot's rank among its block's slots of the same expert, and the block's counts."""
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(ids + at, mask=at < num_slots, other=-1).to(tl.int32)
    experts = tl.arange(0, EXPERTS)
    is_mine = (expert[:, None] == experts[None, :]).to(tl.int32)
    before = tl.cumsum(is_mine, 0) - is_mine
    tl.store(ranks + at, tl.sum(before * is_mine, 1), mask=at < num_slots)
    at_count = counts + experts * num_blocks + block
    tl.store(at_count, tl.sum(is_mine, 0), mask=experts < num_experts)


@triton.jit
def scan_kernel(counts, totals, num_blocks, CHUNK: tl.constexpr):
    """Turn one expert's counts [experts, blocks] into exclusive sums, in place, and its total."""
    expert = tl.program_id(0)
    total = 0
    for first in range(0, num_blocks, CHUNK):
        blocks = first + tl.arange(0, CHUNK)
        at = counts + expert * num_blocks + blocks
        part = tl.load(at, mask=blocks < num_blocks, other=0)
        tl.store(at, tl.cumsum(part, 0) - part + total, mask=blocks < num_blocks)
        total += tl.sum(part, 0)
    tl.store(totals + expert, total)


@triton.jit
def place_kernel(ids, ranks, counts, totals, starts, order, num_slots, num_blocks, num_experts,
                 EXPERTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Write order[start of expert + slots of it in earlier blocks + rank] = slot, and starts."""
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < num_slots
    experts = tl.arange(0, EXPERTS)
    total = tl.load(totals + experts, mask=experts < num_experts, other=0)
    start = tl.cumsum(total, 0) - total
    expert = tl.load(ids + at, mask=inside, other=0).to(tl.int32)
    is_mine = expert[:, None] == experts[None, :]
    first = tl.sum(tl.where(is_mine, start[None, :], 0), 1)
    earlier = tl.load(counts + expert * num_blocks + block, mask=inside, other=0)
    rank = tl.load(ranks + at, mask=inside, other=0)
    tl.store(order + first + earlier + rank, at, mask=inside)
    if block == 0:
        tl.store(starts + experts, start, mask=experts < num_experts)
        tl.store(starts + num_experts, num_slots)


def regroup(ids: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """Return (order, starts) of the slots of `ids` (any integer dtype, flattened).

    `order` [slots] int32 lists the slots expert by expert; those of expert e are
    order[starts[e]:starts[e + 1]]. Raises ValueError for more than 512 experts. Ids must be in
    0..num_experts - 1.
    """
    if not 1 <= num_experts <= MAX_EXPERTS:
        raise ValueError(f"{num_experts} experts are not in 1..{MAX_EXPERTS}")
    flat = ids.reshape(-1)
    num_slots = flat.numel()
    width = triton.next_power_of_2(num_experts)
    block = min(MAX_BLOCK, TILE_VALUES // width)
    num_blocks = triton.cdiv(num_slots, block)
    new: dict[str, Any] = {"device": ids.device, "dtype": torch.int32}
    ranks = torch.empty(num_slots, **new)
    counts = torch.empty((num_experts, num_blocks), **new)
    totals = torch.empty(num_experts, **new)
    starts = torch.empty(num_experts + 1, **new)
    order = torch.empty(num_slots, **new)
    tiles = {"EXPERTS": width, "BLOCK": block, "num_warps": 8}
    count_kernel[(num_blocks,)](flat, ranks, counts, num_slots, num_blocks, num_experts, **tiles)
    chunk = min(1024, triton.next_power_of_2(num_blocks))
    scan_kernel[(num_experts,)](counts, totals, num_blocks, CHUNK=chunk)
    place_kernel[(num_blocks,)](
        flat, ranks, counts, totals, starts, order, num_slots, num_blocks, num_experts, **tiles
    )
    return order, starts
