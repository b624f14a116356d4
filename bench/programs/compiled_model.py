"""Run a transformer encoder that torch.compile has compiled, with the time of each call."""

import argparse
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--mode", default="reduce-overhead")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--length", type=int, default=512)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    blocks = [Block(args.width, args.width // 64) for _ in range(args.layers)]
    model = nn.Sequential(*blocks).to(device=device, dtype=dtype).eval()
    compiled = torch.compile(model, mode=args.mode)
    x = torch.randn(4, args.length, args.width, device=device, dtype=dtype)

    with torch.no_grad():
        for call in range(args.calls):
            if device == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            compiled(x)
            if device == "cuda":
                torch.cuda.synchronize()
            print(f"call {call}: {(time.perf_counter() - begin) * 1e3:.4f} ms", flush=True)


if __name__ == "__main__":
    main()
