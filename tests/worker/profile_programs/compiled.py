"""Compile a model in each of the named ways, one after another; print what the compiler counted.

Each way has a model of its own and an empty compiler; `from_ns` and `until_ns` tell its calls from
those of the other ways.
"""

import json
import sys
import time
import warnings

import torch
from torch import nn
from torch._dynamo.utils import counters


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


def compiled(how, net):
    """Return what is called in place of the net."""
    if how in ("module", "late"):
        for _i in range(4 if how == "late" else 0):
            net(torch.randn(4, 16))
        return torch.compile(net, fullgraph=True, backend="eager")
    if how == "method":
        net.compile(fullgraph=True, backend="eager")
    elif how == "forward":
        net.forward = torch.compile(net.forward, fullgraph=True, backend="eager")
    elif how == "blocks":
        for block in net.blocks:
            block.compile(fullgraph=True, backend="eager")
    elif how == "nested":
        net.blocks[0] = torch.compile(net.blocks[0], backend="eager")
        net.blocks[1].compile(backend="eager")
        return torch.compile(net, fullgraph=True, backend="eager")
    elif how in ("function", "late function"):
        for _i in range(4 if how == "late function" else 0):
            net(torch.randn(4, 16))
        return torch.compile(lambda x: net(x) + 1, fullgraph=True, backend="eager")
    return net


def run(how):
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    # The compiler warns of two graphs of one code, and PyTorch's compiled optimizer of torch.jit.
    warnings.simplefilter("ignore" if how in ("blocks", "optimizer") else "error")
    from_ns = time.perf_counter_ns()
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    model = compiled(how, net)
    step = torch.compile(opt.step, backend="eager") if how == "optimizer" else opt.step
    for _i in range(8):
        y = model(torch.randn(4, 16))
        if how in ("optimizer", "module"):
            y.sum().backward()
            step()
            opt.zero_grad()
    return {
        "from_ns": from_ns,
        "until_ns": time.perf_counter_ns(),
        "stats": {k: v for k, v in counters["stats"].items() if k != "fake_tensor"},
        "breaks": sum(counters["graph_break"].values()),
        "frames": dict(counters["frames"]),
    }


print(json.dumps({how: run(how) for how in sys.argv[1:]}))
