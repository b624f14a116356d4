"""Train on sequences of many lengths, in a limited share of the memory of a GPU."""

import torch
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
batch, width, layers, longest, steps = (
    (16, 1024, 8, 1024, 60) if dev == "cuda" else (2, 64, 2, 32, 20)
)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True)
net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(dev)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)


def step(length):
    x = torch.randn(batch, length, width, device=dev)
    with torch.autocast(dev, dtype=torch.bfloat16):
        loss = (net(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


step(longest)
if dev == "cuda":
    needed = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(
        1.2 * needed / torch.cuda.get_device_properties(0).total_memory
    )
lengths = torch.Generator().manual_seed(1)
for _ in range(steps):
    loss = step(int(torch.randint(longest // 4, longest + 1, (1,), generator=lengths)))
print(f"loss {loss.item():.6f}")
