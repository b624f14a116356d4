"""Steps on a CPU with a stand-in for CUDA's events that counts what is asked of it."""

import collections
import json
import sys
import time

import torch
import warpboard_hooks

counts = collections.Counter()


class Event:
    def __init__(self, enable_timing=False):
        self.at_ns = 0

    def record(self, stream):
        counts["record"] += 1
        self.at_ns = time.perf_counter_ns()

    def query(self):
        counts["query"] += 1
        return True

    def elapsed_time(self, other):
        counts["elapsed"] += 1
        return (other.at_ns - self.at_ns) / 1e6

    def synchronize(self):
        counts["synchronize"] += 1


def is_capturing():
    counts["capturing"] += 1
    return False


class Gpu:
    name, major, minor, multi_processor_count, total_memory = "stand-in", 9, 0, 1, 1


session = warpboard_hooks.current()
session.new_event, session.record_event = Event, Event.record
session.is_capturing = is_capturing
warpboard_hooks.is_cuda_in_use = torch.cuda.is_initialized = lambda: True
torch._C._cuda_getDevice = torch._C._cuda_getCurrentRawStream = lambda *given: 0
torch.cuda.current_stream = torch.cuda.current_device = lambda *given: 0
torch.cuda.memory_stats = lambda: {
    "allocated_bytes.all.peak": 5,
    "reserved_bytes.all.peak": 7,
    "num_alloc_retries": 2,
}
torch.cuda.get_device_properties = lambda device: Gpu

net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 8)


def step(kind, passes):
    if kind == "inference":
        with torch.no_grad():
            net(x)
        return
    for _ in range(passes):
        net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


kind, passes = sys.argv[1], int(sys.argv[2])
for _ in range(20):
    step(kind, passes)
session.flush(time.perf_counter_ns())
session.read_events(1 << 30)
counts.clear()
for _ in range(200):
    step(kind, passes)
session.flush(time.perf_counter_ns())
session.read_events(1 << 30)
print(json.dumps({name: count / 200 for name, count in counts.items()}))
