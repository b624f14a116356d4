"""RMSNorm of rows in one pass: read once, written once, float32 inside.

y = x / sqrt(mean(x^2) + eps) * weight (https://arxiv.org/abs/1910.07467).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_WIDTH = 65536


@triton.jit
def rms_norm_kernel(x, weight, out, width, eps, WIDTH: tl.constexpr):
    """Normalise one row."""
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, WIDTH)
    inside = at < width
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / width + eps)
    weights = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, (values * scale * weights).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the rows (last dimension) of x normalised. ValueError above 65 536 columns."""
    width = x.shape[-1]
    if width > MAX_WIDTH:
        raise ValueError(f"{width} columns are more than {MAX_WIDTH}")
    rows = x.contiguous().view(-1, width)
    out = torch.empty_like(rows)
    block = triton.next_power_of_2(width)
    warps = min(16, max(1, block // 512))
    rms_norm_kernel[(rows.shape[0],)](rows, weight, out, width, eps, WIDTH=block, num_warps=warps)
    return out.view(x.shape)
