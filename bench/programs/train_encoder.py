"""Train a transformer encoder in bf16 on random numbers, with the time of each step."""

import argparse
import time

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=768)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = nn.TransformerEncoderLayer(
        args.width, args.width // 64, 4 * args.width, dropout=0.0, batch_first=True
    )
    model = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    x = torch.randn(args.batch, args.length, args.width, device=device)

    for step in range(args.steps):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - begin
        print(f"step {step}: loss {loss.item():.3f}, {took * 1e3:.4f} ms", flush=True)


if __name__ == "__main__":
    main()
