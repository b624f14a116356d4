"""Short steps of changing kinds, with a stand-in for CUDA's events; prints what was done, in order.

Each line of the list: kind of step, calls in it, when it began by the stand-in for the clock: each
call of a model takes 0.3 ms, and each look at it 1 us.
"""

import contextlib
import json
import random
import sys

import torch
import warpboard_calls
import warpboard_session
from warpboard_events import Events

now_ns = 0


def clock_ns():
    return let_pass(1_000)


def let_pass(ns):
    global now_ns
    now_ns += ns
    return now_ns


class Driver:
    """An event is the number of an entry in a list of times; it shows the time of the host."""

    at_ns = [0]  # noqa: RUF012

    def new(self):
        self.at_ns.append(0)
        return len(self.at_ns) - 1

    def record(self, event, stream):
        self.at_ns[event] = now_ns

    def is_past(self, event):
        return True

    def elapsed_ms(self, first, second):
        return (self.at_ns[second] - self.at_ns[first]) / 1e6

    def wait(self, event):
        pass


warpboard_session.sibling("warpboard_events").make_events = lambda torch: Events(torch, Driver())
warpboard_calls.clock_ns = warpboard_session.clock_ns = clock_ns
torch.cuda.is_initialized = lambda: True
torch.cuda._initialized = True
torch.cuda.device = contextlib.nullcontext
torch._C._cuda_getCurrentRawStream = lambda device: 0
torch.cuda.current_device = lambda: 0
torch.cuda.memory_stats = dict
torch.cuda.get_device_properties = lambda device: Gpu


class Gpu:
    name, major, minor, multi_processor_count, total_memory = "stand-in", 9, 0, 1, 1


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        let_pass(300_000)
        if x.shape[0] == 3:
            raise ValueError("three")
        return self.inner(x)


class Ema(Net):
    pass


chance = random.Random(int(sys.argv[1]))
net, ema = Net(), Ema()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
done = []


def train(calls):
    began_ns = clock_ns()
    for _ in range(calls):
        net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    done.append(("train", calls, began_ns))


def leave_out():
    """Make a step that a gradient scaler leaves out."""
    began_ns = clock_ns()
    scaler.scale(net(torch.ones(2, 4)).sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    done.append(("train", 1, began_ns))


def evaluate(model, count, size):
    for _ in range(count):
        began_ns = clock_ns()
        with torch.no_grad():
            model(torch.ones(size, 4))
        done.append((type(model).__name__, 1, began_ns))


def fail():
    began_ns = clock_ns()
    with contextlib.suppress(ValueError):
        net(torch.ones(3, 4))
    done.append(("failed", 1, began_ns))


trains = sys.argv[2] == "training"
for _ in range(120):
    for _ in range(chance.choice((1, 3, 20, 60))):
        if trains:
            train(1)
        else:
            evaluate(net, 1, 2)
    what = chance.randrange(9)
    if what == 0 and trains:
        for _ in range(chance.choice((1, 5))):
            train(3)
    elif what == 1:
        evaluate(net, chance.choice((1, 7)), 2)
    elif what == 2:
        evaluate(ema, chance.choice((1, 7)), 2)
    elif what == 3:
        evaluate(net, chance.choice((1, 7)), 5)
    elif what == 4:
        fail()
    elif what == 5:
        let_pass(6_000_000)
    elif what == 6 and trains:
        net(torch.ones(2, 4))
        done.append(("extra", 1, clock_ns()))
    elif what == 7 and trains:
        leave_out()
    elif what == 8 and trains:
        with torch.no_grad():
            net.inner.weight.clamp_(-1, 1)
        done.append(("edited", 0, clock_ns()))
print(json.dumps(done))
