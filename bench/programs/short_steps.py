"""Train a small network with steps of about a millisecond, with the mean time of 50 steps.

Nothing waits for the GPU inside of a block: many short kernels, bound by their launches, are where
whatever is done around a step is seen first.
"""

import argparse
import time

import torch
from torch import nn

BLOCK = 50


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    layers = [
        nn.Sequential(nn.Linear(args.width, args.width), nn.GELU()) for _ in range(args.layers)
    ]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, args.width, device=device)

    for block in range(args.blocks):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(BLOCK):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - begin
        print(f"block {block}: loss {loss.item():.4f}, {took / BLOCK * 1e3:.5f} ms", flush=True)


if __name__ == "__main__":
    main()
