"""Compile a model in one of several ways; print what the compiler counted."""

import json
import sys
import warnings

import torch
from torch import nn
from torch._dynamo.utils import counters

warnings.simplefilter("error")
torch.manual_seed(0)
how = sys.argv[1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = nn.Linear(16, 16)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 16)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
model = net
if how == "module":
    model = torch.compile(net, fullgraph=True, backend="eager")

elif how == "method":
    net.compile(fullgraph=True, backend="eager")
elif how == "forward":
    net.forward = torch.compile(net.forward, fullgraph=True, backend="eager")
elif how == "blocks":
    warnings.simplefilter("ignore")  # the compiler warns of two graphs of one code
    for b in net.blocks:
        b.compile(fullgraph=True, backend="eager")
elif how == "nested":
    net.blocks[0] = torch.compile(net.blocks[0], backend="eager")
    net.blocks[1].compile(backend="eager")
    model = torch.compile(net, fullgraph=True, backend="eager")
elif how == "function":

    @torch.compile(fullgraph=True, backend="eager")
    def model(x):
        return net(x) + 1
elif how == "late":
    for _i in range(4):
        net(torch.randn(4, 16))
    model = torch.compile(net, fullgraph=True, backend="eager")
elif how == "late function":
    for _i in range(4):
        net(torch.randn(4, 16))

    @torch.compile(fullgraph=True, backend="eager")
    def model(x):
        return net(x) + 1
elif how == "optimizer":
    warnings.simplefilter("default")  # PyTorch's own compiled optimizer warns of torch.jit
    step = torch.compile(opt.step, backend="eager")
for _i in range(8):
    y = model(torch.randn(4, 16))
    if how in ("optimizer", "module", "eager"):
        y.sum().backward()
        (step if how == "optimizer" else opt.step)()
        opt.zero_grad()

print(
    json.dumps(
        {
            "stats": {k: v for k, v in counters["stats"].items() if k != "fake_tensor"},
            "breaks": sum(counters["graph_break"].values()),
            "frames": dict(counters["frames"]),
        },
        sort_keys=True,
    )
)
