"""Llama layers with a KV cache, written plainly: what an eager PyTorch user would write.

Architecture: RMSNorm, rotary embedding, grouped-query attention, SwiGLU
(https://arxiv.org/abs/2302.13971; https://github.com/meta-llama/llama/blob/main/llama/model.py).
Shapes: B batch, S new tokens, C cache length, D d_model, H heads, K KV heads, E head dim, F ff.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.llama_params import LlamaParams
from workloads.measure.ranges import RangeFactory

ROPE_BASE = 10_000.0
Cache = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return wide.type_as(x) * self.weight


def rope_table(length: int, head_dim: int, device: torch.device) -> Tensor:
    """Return cos and sin of every position, [2, length, E / 2], float32."""
    steps = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32)
    frequencies = ROPE_BASE ** (-steps / head_dim)
    angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x_BHSE: Tensor, table_2SE: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + E/2]) by its position's angle."""
    cos, sin = table_2SE[0], table_2SE[1]
    first, second = x_BHSE.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.type_as(x_BHSE)


class Attention(nn.Module):
    """Grouped-query attention over a cache that is written in place."""

    def __init__(self, shape: LlamaParams, ranges: RangeFactory) -> None:
        super().__init__()
        self.shape = shape
        self.ranges = ranges
        self.wq = nn.Linear(shape.d_model, shape.d_model, bias=False)
        self.wk = nn.Linear(shape.d_model, shape.kv_dim, bias=False)
        self.wv = nn.Linear(shape.d_model, shape.kv_dim, bias=False)
        self.wo = nn.Linear(shape.d_model, shape.d_model, bias=False)

    def forward(
        self,
        x_BSD: Tensor,
        at_S: Tensor,
        table: Tensor | None,
        cache: Cache | None,
        mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        b, s, _ = x_BSD.shape
        heads, kv_heads, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        q = self.wq(x_BSD).view(b, s, heads, dim).transpose(1, 2)
        k = self.wk(x_BSD).view(b, s, kv_heads, dim).transpose(1, 2)
        v = self.wv(x_BSD).view(b, s, kv_heads, dim).transpose(1, 2)
        if table is not None:
            q, k = rotate(q, table), rotate(k, table)
        if cache is not None:
            cache[0].index_copy_(2, at_S, k)
            cache[1].index_copy_(2, at_S, v)
            if not is_causal:  # a prefill attends what it has just computed
                k, v = cache
        mixed = self._attend(q, k, v, mask, is_causal)
        return self.wo(mixed.transpose(1, 2).reshape(b, s, heads * dim))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool
    ) -> Tensor:
        grouped = self.shape.heads != self.shape.kv_heads
        if self.shape.attention == "sdpa":
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=grouped
            )
        if self.shape.attention == "triton":
            from workloads.kernels.attention.decode import attend_one

            return attend_one(q, k, v)
        if grouped:
            repeats = self.shape.heads // self.shape.kv_heads
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        return naive_attention(q, k, v, mask, is_causal, self.ranges)


def naive_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, ranges: RangeFactory
) -> Tensor:
    """Return softmax(q k^T / sqrt(E)) v with the score matrix in memory; mask: True is kept."""
    with ranges("attention_scores"):
        scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5)
        if is_causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
    with ranges("softmax"):
        weights = scores.float().softmax(-1).type_as(q)
    with ranges("attention_output"):
        return weights @ v


class Layer(nn.Module):
    """One pre-norm Llama block; the cache is a buffer unless one is passed."""

    k_cache: Tensor | None
    v_cache: Tensor | None

    def __init__(self, shape: LlamaParams, ranges: RangeFactory) -> None:
        super().__init__()
        self.ranges = ranges
        self.attention_norm = RMSNorm(shape.d_model)
        self.attention = Attention(shape, ranges)
        self.mlp_norm = RMSNorm(shape.d_model)
        self.w_gate = nn.Linear(shape.d_model, shape.ff, bias=False)
        self.w_up = nn.Linear(shape.d_model, shape.ff, bias=False)
        self.w_down = nn.Linear(shape.ff, shape.d_model, bias=False)
        self.register_buffer("k_cache", None, persistent=False)
        self.register_buffer("v_cache", None, persistent=False)

    def forward(
        self,
        x: Tensor,
        at_S: Tensor,
        table: Tensor | None,
        cache: Cache | None,
        mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        if cache is None and self.k_cache is not None and self.v_cache is not None:
            cache = (self.k_cache, self.v_cache)
        with self.ranges("attention"):
            normed = self.attention_norm(x)
            x = x + self.attention(normed, at_S, table, cache, mask, is_causal)
        with self.ranges("mlp"):
            normed = self.mlp_norm(x)
            return x + self.w_down(F.silu(self.w_gate(normed)) * self.w_up(normed))


class Llama(nn.Module):
    """A stack of layers, with embedding and output head when `vocab` is not 0."""

    rope: Tensor | None

    def __init__(self, shape: LlamaParams, ranges: RangeFactory) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape, ranges) for _ in range(shape.layers))
        self.embedding = nn.Embedding(shape.vocab, shape.d_model) if shape.vocab else None
        self.norm = RMSNorm(shape.d_model) if shape.vocab else None
        self.head = nn.Linear(shape.d_model, shape.vocab, bias=False) if shape.vocab else None
        self.register_buffer("rope", None, persistent=False)

    def forward(
        self,
        x: Tensor,
        at_S: Tensor,
        caches: list[Cache] | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return logits [B, S, vocab], or hidden states [B, S, D] without a vocabulary.

        `x` is tokens [B, S] with a vocabulary, else hidden states; `at_S` their positions.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        table = self.rope.index_select(1, at_S) if self.rope is not None else None
        for index, layer in enumerate(self.layers):
            cache = caches[index] if caches is not None else None
            x = layer(x, at_S, table, cache, mask, is_causal)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x


def build_llama(
    shape: LlamaParams,
    *,
    device: torch.device,
    dtype: torch.dtype,
    max_length: int,
    ranges: RangeFactory,
) -> Llama:
    """Return the stack with random weights on the device, in eval mode, without a cache."""
    with torch.device("meta"):
        model = Llama(shape, ranges)
    model = model.to(dtype).to_empty(device=device)
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            nn.init.ones_(weight)
        else:
            nn.init.normal_(weight, std=0.02)
    if shape.rope:
        model.rope = rope_table(max_length, shape.head_dim, device)
    return model.eval().requires_grad_(False)


def make_caches(
    model: Llama, batch: int, length: int, device: torch.device, dtype: torch.dtype
) -> list[Cache]:
    """Return a filled key and value cache [B, K, C, E] a layer."""
    shape = model.shape
    size = (batch, shape.kv_heads, length, shape.head_dim)
    return [
        (
            torch.randn(size, device=device, dtype=dtype),
            torch.randn(size, device=device, dtype=dtype),
        )
        for _ in range(shape.layers)
    ]


def install_caches(model: Llama, caches: list[Cache]) -> None:
    """Make the caches buffers of their layers: inductor then accepts that they are changed."""
    for layer, (k, v) in zip(model.layers, caches, strict=True):
        layer.k_cache, layer.v_cache = k, v
