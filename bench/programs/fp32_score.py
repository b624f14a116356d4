"""Score rows by a wide perceptron in fp32, as a recommender does: inference, no optimizer."""

import torch
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
rows, width, layers = (2048, 2048, 8) if dev == "cuda" else (16, 32, 2)
torch.manual_seed(0)
net = (
    nn.Sequential(
        *(
            m
            for _ in range(layers)
            for m in (
                nn.Linear(width, 4 * width),
                nn.ReLU(),
                nn.Linear(4 * width, width),
                nn.LayerNorm(width),
            )
        )
    )
    .to(dev)
    .eval()
)
total = 0.0
with torch.inference_mode():
    for _ in range(120):
        total += net(torch.randn(rows, width, device=dev)).square().mean().item()
print(f"mean {total / 120:.6f}")
