"""Steps on a CPU with stand-ins for the clock and for CUDA's events, which count what is asked.

By the clock each step takes 1 ms, and each look at it 1 us, however fast the machine is.

Arguments: kind of steps, or an optimizer, a colon and a habit of training; forward passes of each;
steps of a group. `calls` prints how many functions the hooks call in a step instead, `compiles`
which graphs come of what is compiled amid steps, `behind` makes what the GPU does take a million
times longer.
"""

import collections
import contextlib
import json
import os
import sys
from typing import ClassVar

import torch
import warpboard_calls
import warpboard_hooks
import warpboard_pace
import warpboard_session
from warpboard_events import Events

counts = collections.Counter()
now_ns = 0


def clock_ns():
    global now_ns
    now_ns += 1_000
    return now_ns


class Driver:
    """An event is the number of an entry in a list of times."""

    at_ns: ClassVar[list[int]] = [0]

    def new(self):
        counts["new"] += 1
        self.at_ns.append(0)
        return len(self.at_ns) - 1

    def record(self, event, stream):
        counts["record"] += 1
        self.at_ns[event] = now_ns

    def is_past(self, event):
        counts["query"] += 1
        return True

    def elapsed_ms(self, first, second):
        counts["elapsed"] += 1
        factor = 1e6 if "behind" in sys.argv else 1
        return factor * (self.at_ns[second] - self.at_ns[first]) / 1e6

    def wait(self, event):
        counts["synchronize"] += 1


class Gpu:
    name, major, minor, multi_processor_count, total_memory = "stand-in", 9, 0, 1, 1


session = warpboard_hooks.current()
warpboard_session.sibling("warpboard_events").make_events = lambda torch: Events(torch, Driver())
for module in (warpboard_calls, warpboard_pace):
    module.SHORT_NS = 10**10
warpboard_pace.GROUP_NS = 10**12
session.pace.most = session.pace.limit = int(sys.argv[3])
if "calls" not in sys.argv:  # a stand-in would be one more function
    warpboard_calls.clock_ns = warpboard_session.clock_ns = clock_ns
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


class Parts(torch.nn.Module):
    """Two layers, of which a call may leave the first one out."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.is_short = False

    def forward(self, x):
        return self.last(x if self.is_short else self.first(x))


class Unseen(torch.optim.Optimizer):
    """Changes parameters past PyTorch's count of their changes, and has no state."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.data.sub_(0.01 * p.grad)


MAKERS = {
    "looped": lambda p: torch.optim.AdamW(p, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "without state": lambda p: torch.optim.SGD(p, lr=0.01),
    "fused without state": lambda p: torch.optim.SGD(p, lr=0.01, fused=True),
    "unseen": Unseen,
}
x = torch.randn(4, 8)
kind, passes = sys.argv[1], int(sys.argv[2])
net, others = torch.nn.Linear(8, 8), []
if ":" in kind:
    net, (maker, _, habit) = Parts(), kind.partition(":")
    optimizer = MAKERS[maker](net.parameters())
    if habit in ("both", "late"):
        others = [MAKERS[maker](net.parameters())]
    if habit == "parallel":
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        net = torch.nn.parallel.DistributedDataParallel(net)
    average = torch.optim.swa_utils.AveragedModel(net)
else:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


@torch.no_grad()
def edit():
    for p in net.parameters():
        p.clamp_(-1, 1)


def habitual_step(habit, number):
    """Make a step of training with a habit that some programs have."""
    is_odd_one = number % 9 == 4
    net.is_short = habit == "leaves out" and is_odd_one
    net(x).sum().backward()
    if habit == "edits before":
        edit()
    is_left_out = {
        "skips": is_odd_one, "edits before": is_odd_one, "edits after": is_odd_one,
        "gathers": number >= 100 and number % 4 < 3, "restores": is_odd_one,
    }.get(habit, False)  # fmt: skip
    if not is_left_out:
        optimizer.step()
    if habit == "twice" or (habit == "at times twice" and is_odd_one):
        optimizer.step()
    if habit == "both" or (habit == "late" and number >= 110):
        others[0].step()
    if habit == "edits after" or (habit == "restores" and is_odd_one):
        edit()
    if habit == "edits data":
        for p in net.parameters():
            p.data.clamp_(-1, 1)
    if habit == "averages":
        average.update_parameters(net)
    if habit != "gathers" or not is_left_out:
        optimizer.zero_grad()


def step(kind, passes, number):
    global now_ns
    now_ns += 1_000_000
    if ":" in kind:
        habitual_step(kind.partition(":")[2], number)
        return
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


for number in range(220):
    step(kind, passes, number)
    if number % 20 == 19:
        session.look(clock_ns())
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
