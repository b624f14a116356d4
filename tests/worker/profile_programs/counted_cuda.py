"""Steps on a CPU with a stand-in for CUDA's events that counts what is asked of it.

Arguments: kind of steps, forward passes of each, steps of a group; `calls` prints how many
functions the hooks call in a step instead, `compiles` which graphs come of what is compiled amid
steps, `behind` makes what the GPU does take a billion times longer.
"""

import collections
import contextlib
import json
import os
import sys
import time
from typing import ClassVar

import torch
import warpboard_calls
import warpboard_hooks
import warpboard_pace
import warpboard_session
from warpboard_events import Events

counts = collections.Counter()


class Driver:
    """An event is the number of an entry in a list of times."""

    at_ns: ClassVar[list[int]] = [0]

    def new(self):
        counts["new"] += 1
        self.at_ns.append(0)
        return len(self.at_ns) - 1

    def record(self, event, stream):
        counts["record"] += 1
        self.at_ns[event] = time.perf_counter_ns()

    def is_past(self, event):
        counts["query"] += 1
        return True

    def elapsed_ms(self, first, second):
        counts["elapsed"] += 1
        factor = 1e9 if "behind" in sys.argv else 1
        return factor * (self.at_ns[second] - self.at_ns[first]) / 1e6

    def wait(self, event):
        counts["synchronize"] += 1


class Gpu:
    name, major, minor, multi_processor_count, total_memory = "stand-in", 9, 0, 1, 1


session = warpboard_hooks.current()
warpboard_session.sibling("warpboard_events").make_events = lambda torch: Events(torch, Driver())
for module in (warpboard_calls, warpboard_pace):
    module.SHORT_NS = 10**10  # on a busy machine too
warpboard_pace.GROUP_NS = 10**12
session.pace.most = session.pace.limit = int(sys.argv[3])
torch.cuda.is_initialized = lambda: True
torch.cuda._initialized = True
torch.cuda.device = contextlib.nullcontext
torch._C._cuda_getCurrentRawStream = lambda device: 0
torch.cuda.current_device = lambda: 0
torch.cuda.memory_stats = lambda: {
    "allocated_bytes.all.peak": 5,
    "reserved_bytes.all.peak": 7,
    "num_alloc_retries": 2,
}
torch.cuda.get_device_properties = lambda device: Gpu

net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 8)


def step(kind, passes, number):
    if kind == "prefill and decode":
        with torch.no_grad():
            net(torch.randn(4 if number % 11 else 20, 8))
        return
    if kind == "inference":
        with torch.no_grad():
            net(x)
        return
    for _ in range(passes):
        net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def count_calls(kind, passes):
    """Print how many functions of Python and of C the hooks call in most steps."""
    hooks = os.path.dirname(warpboard_hooks.__file__)
    counted = collections.Counter()

    def profile(frame, event, function):
        caller = frame.f_back if event == "call" else frame
        if caller is not None and caller.f_code.co_filename.startswith(hooks):
            counted[event] += frame.f_code.co_name != "_call_impl"
        elif event == "call" and frame.f_code.co_filename.startswith(hooks):
            counted[event] += 1

    steps = collections.Counter()
    for number in range(160):
        counted.clear()
        sys.setprofile(profile)
        step(kind, passes, number)
        sys.setprofile(None)
        steps[counted["call"], counted["c_call"]] += 1
    print(json.dumps(steps.most_common(1)[0]))


def compile_parts():
    """Compile the optimizer's step, a whole step, the model, amid steps; print what was counted."""
    from torch._dynamo.utils import counters

    for part in (
        optimizer.step,
        lambda: step("training", 1, 0),
        lambda: net(x).sum(),
    ):
        for _ in range(80):
            step("training", 1, 0)
        was_counting = session.pace.counts_training
        compiled = torch.compile(part, backend="eager")
        for _ in range(3):
            net(x).sum().backward()
            compiled()
            optimizer.step()
            optimizer.zero_grad()
        kept = {k: counters[k] for k in ("stats", "graph_break", "frames")}
        print(json.dumps([was_counting, kept], sort_keys=True))
        counters.clear()
        torch._dynamo.reset()


kind, passes = sys.argv[1], int(sys.argv[2])
for number in range(220):
    step(kind, passes, number)
    if number % 20 == 19:
        session.look(time.perf_counter_ns())
        session.read_events()
    if number == 19:
        counts.clear()
if "compiles" in sys.argv:
    compile_parts()
    sys.exit()
if "calls" in sys.argv:
    count_calls(kind, passes)
    sys.exit()
print(json.dumps({name: count / 200 for name, count in counts.items()}))
