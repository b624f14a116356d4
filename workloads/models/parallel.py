"""Spread a `Gpt` over the ranks of a job, each way with PyTorch's own classes.

https://docs.pytorch.org/docs/stable/distributed.html,
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html,
https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from typing import Any

import torch
from torch import nn

from workloads.models.gpt import Gpt
from workloads.program import Context


def replicate(model: Gpt, context: Context) -> nn.Module:
    """Return the model on every rank; a backward pass averages gradients by all-reduce."""
    from torch.nn.parallel import DistributedDataParallel

    ids = [torch.cuda.current_device()] if context.on_gpu else None
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)


def shard(model: Gpt, context: Context, *, is_bf16: bool) -> nn.Module:
    """Return the model with weights, gradients and optimizer state cut over the ranks.

    With bf16 the weights are gathered as bf16 and gradients are reduced as fp32.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy()
    if is_bf16:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = _mesh(context)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def split_matrices(model: Gpt, context: Context) -> nn.Module:
    """Return the model with the matrices of each block and the head cut over the ranks."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = _mesh(context)
    plan: dict[str, Any] = {
        "attention.qkv": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(),
    }
    if any(name.endswith("mlp.gate") for name, _ in model.named_modules()):
        plan["mlp.gate"] = ColwiseParallel()
    for block in model.blocks:
        parallelize_module(block, mesh, dict(plan))
    head = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(model, mesh, {"head": head})
    return model


def _mesh(context: Context) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(context.device.type, (context.ranks.size,))
