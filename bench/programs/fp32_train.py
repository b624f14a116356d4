"""Train a GPT of plain PyTorch in fp32, as it comes: no autocast, no TF32."""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
dev = "cuda" if torch.cuda.is_available() else "cpu"
batch, length, width, layers, heads, words = (
    (8, 512, 1024, 6, 16, 8192) if dev == "cuda" else (2, 32, 64, 2, 2, 128)
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (
            y.view(n, t, heads, -1).transpose(1, 2) for y in self.qkv(self.a(x)).chunk(3, -1)
        )
        y = (
            scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(n, t, width)
        )
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(self.b(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
net = Gpt().to(dev)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
for _ in range(steps):
    ids = torch.randint(0, words, (batch, length), device=dev)
    loss = cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.6f}")
