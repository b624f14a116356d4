"""Mixture-of-experts routing in plain PyTorch, and the sort-based grouping it is compared with.

Shapes: T tokens, E experts, k experts a token.
"""

import torch
from torch import Tensor


def route(logits_TE: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the weights [T, k] and expert ids [T, k] of the k most probable experts."""
    probabilities = logits_TE.float().softmax(-1)
    weights, ids = probabilities.topk(top_k, -1)
    return weights / weights.sum(-1, keepdim=True), ids


def regroup_by_sort(ids: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """Return (order, starts) as `kernels.moe_regroup.regroup` does, by a stable sort."""
    ordered, order = torch.sort(ids.reshape(-1), stable=True)
    bounds = torch.arange(num_experts + 1, device=ids.device, dtype=ordered.dtype)
    return order, torch.searchsorted(ordered, bounds)
