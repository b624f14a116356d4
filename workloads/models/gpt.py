"""A GPT-style language model, written plainly, and the ways to spread it over the ranks of a job.

Pre-norm blocks, learned positions, LayerNorm, GELU or SwiGLU, with the parts of attention as ranges
(https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf).
Shapes: B batch, S sequence, D d_model, H heads, E head dim, F ff, V vocabulary.
Each way to spread it is PyTorch's own: https://docs.pytorch.org/docs/stable/distributed.html,
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html,
https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.measure.ranges import RangeFactory
from workloads.models.llama import naive_attention
from workloads.program import Context
from workloads.transformer_params import Params


class Attention(nn.Module):
    """Causal self-attention; `naive` keeps the score matrix in memory.

    `splits_heads` orders the columns of `qkv` by head, so that a part of them is whole heads.
    """

    def __init__(self, p: Params, ranges: RangeFactory) -> None:
        super().__init__()
        self.head_dim = p.d_model // p.heads
        self.splits_heads = p.parallel == "tensor"
        self.kind = p.attention
        self.ranges = ranges
        self.qkv = nn.Linear(p.d_model, 3 * p.d_model)
        self.out = nn.Linear(p.d_model, p.d_model)

    def forward(self, x_BSD: Tensor) -> Tensor:
        b, s, _ = x_BSD.shape
        qkv = self.qkv(x_BSD)
        if self.splits_heads:
            q, k, v = qkv.view(b, s, -1, 3, self.head_dim).permute(3, 0, 2, 1, 4).unbind(0)
        else:
            q, k, v = qkv.view(b, s, 3, -1, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        if self.kind == "sdpa":
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = naive_attention(q, k, v, None, True, self.ranges)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """GELU of two matrices, or SwiGLU of three."""

    def __init__(self, p: Params) -> None:
        super().__init__()
        self.up = nn.Linear(p.d_model, p.ff)
        self.gate = nn.Linear(p.d_model, p.ff) if p.mlp == "swiglu" else None
        self.down = nn.Linear(p.ff, p.d_model)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            return self.down(F.silu(self.gate(x)) * self.up(x))
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """One pre-norm block."""

    def __init__(self, p: Params, ranges: RangeFactory) -> None:
        super().__init__()
        self.ranges = ranges
        self.attention_norm = nn.LayerNorm(p.d_model)
        self.attention = Attention(p, ranges)
        self.mlp_norm = nn.LayerNorm(p.d_model)
        self.mlp = Mlp(p)

    def forward(self, x: Tensor) -> Tensor:
        with self.ranges("attention"):
            x = x + self.attention(self.attention_norm(x))
        with self.ranges("mlp"):
            return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    """The language model: tokens [B, S] -> logits [B, S, V]."""

    def __init__(self, p: Params, ranges: RangeFactory) -> None:
        super().__init__()
        self.tokens = nn.Embedding(p.vocab, p.d_model)
        self.positions = nn.Embedding(p.seq_len, p.d_model)
        self.blocks = nn.ModuleList(Block(p, ranges) for _ in range(p.layers))
        self.norm = nn.LayerNorm(p.d_model)
        self.head = nn.Linear(p.d_model, p.vocab, bias=False)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        at = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
        x = self.tokens(tokens_BS) + self.positions(at)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


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
