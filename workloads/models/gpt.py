"""A GPT-style language model, written plainly, with the parts of attention as ranges.

Pre-norm blocks, learned positions, LayerNorm, GELU or SwiGLU
(https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf).
Shapes: B batch, S sequence, D d_model, H heads, E head dim, F ff, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.measure.ranges import RangeFactory
from workloads.models.llama import naive_attention


class Attention(nn.Module):
    """Causal self-attention; `naive` keeps the score matrix in memory.

    `splits_heads` orders the columns of `qkv` by head, so that a part of them is whole heads.
    """

    def __init__(
        self, d_model: int, heads: int, kind: str, ranges: RangeFactory, *, splits_heads: bool
    ) -> None:
        super().__init__()
        self.head_dim = d_model // heads
        self.splits_heads = splits_heads
        self.kind = kind
        self.ranges = ranges
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

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

    def __init__(self, d_model: int, ff: int, kind: str) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, ff)
        self.gate = nn.Linear(d_model, ff) if kind == "swiglu" else None
        self.down = nn.Linear(ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            return self.down(F.silu(self.gate(x)) * self.up(x))
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """One pre-norm block."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        ff: int,
        attention: str,
        mlp: str,
        ranges: RangeFactory,
        *,
        splits_heads: bool,
    ) -> None:
        super().__init__()
        self.ranges = ranges
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, heads, attention, ranges, splits_heads=splits_heads)
        self.mlp_norm = nn.LayerNorm(d_model)
        self.mlp = Mlp(d_model, ff, mlp)

    def forward(self, x: Tensor) -> Tensor:
        with self.ranges("attention"):
            x = x + self.attention(self.attention_norm(x))
        with self.ranges("mlp"):
            return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    """The language model: tokens [B, S] -> logits [B, S, V]."""

    def __init__(
        self,
        *,
        layers: int,
        d_model: int,
        heads: int,
        ff: int,
        vocab: int,
        seq_len: int,
        attention: str,
        mlp: str,
        ranges: RangeFactory,
        splits_heads: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, d_model)
        self.positions = nn.Embedding(seq_len, d_model)
        self.blocks = nn.ModuleList(
            Block(d_model, heads, ff, attention, mlp, ranges, splits_heads=splits_heads)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        at = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
        x = self.tokens(tokens_BS) + self.positions(at)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
