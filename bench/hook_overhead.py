"""What the hooks of `warpboard profile` cost a step: `python -m bench.hook_overhead`.

Calls of one module with and without the hook take turns in one process, in short blocks; the cost
is the median of the differences between neighbouring blocks' fastest calls. Of a call that takes
about a millisecond, and of one that takes next to nothing. Run it with a Python that has torch.
`--training` adds an optimizer. `--device cuda` puts the module on the GPU: events are then recorded
around each call, and a block's time is that until the GPU has ended it, since calls return before.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HOOKS = Path(__file__).resolve().parents[1] / "worker" / "hooks"
BLOCK_S = 0.01
GPU_BLOCK_S = 0.1
"""Groups of steps, and what is written every 25 ms, run their course several times in it."""


def main() -> None:
    """Start again with the hooks inside, or measure."""
    if "WARPBOARD_PROFILE" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            settings = json.dumps({"pass": "clean", "dir": folder})
            hooks = str(_arguments().hooks)
            env = {**os.environ, "WARPBOARD_PROFILE": settings, "PYTHONPATH": hooks}
            sys.exit(os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], env))
    args = _arguments()
    is_gpu = args.device == "cuda"
    for size in (8, _size_of_a_millisecond(args.device)):
        step = _step(size, args.device, training=args.training)
        plain_us, cost_us = _cost(step, args.pairs, is_gpu=is_gpu)
        print(
            f"step of {plain_us:8.1f} us: hooks cost {cost_us:5.2f} us "
            f"({cost_us / plain_us:.2%} of it, {cost_us / 1000:.2%} of a 1 ms step)"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--hooks", type=Path, default=HOOKS, help="folder of another version's")
    return parser.parse_args()


class Step(NamedTuple):
    """What is called, and the module whose calls the hooks see."""

    call: Callable[[], Any]
    module: Any


def _step(size: int, device: str, *, training: bool) -> Step:
    """Return a step: wider by `size` on a CPU, of more layers on a GPU, which launches bound."""
    import torch

    torch.set_num_threads(1)
    width, depth = (size, 1) if device == "cpu" else (256, size)
    layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())] * depth
    net = torch.nn.Sequential(*layers).to(device)
    x = torch.randn(64, width, device=device)
    if not training:
        return Step(lambda: net(x), net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)

    def step() -> None:
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Step(step, net)


def _size_of_a_millisecond(device: str) -> int:
    sizes = (128, 256, 384, 512, 768, 1024, 1536, 2048)
    for size in sizes if device == "cpu" else (8, 12, 16, 24, 32, 48, 64, 96, 128):
        call = _step(size, device, training=False).call
        for _ in range(20):
            call()
        _wait(device == "cuda")
        begin = time.perf_counter()
        for _ in range(50):
            call()
        _wait(device == "cuda")
        if (time.perf_counter() - begin) / 50 > 0.8e-3:
            return size
    return size


def _wait(is_gpu: bool) -> None:
    if is_gpu:
        import torch

        torch.cuda.synchronize()


def _cost(step: Step, pairs: int, *, is_gpu: bool) -> tuple[float, float]:
    """Return (time of a step without hooks, cost of the hooks) in microseconds."""
    import torch

    call, module = step

    session = sys.modules["warpboard_hooks"].current()
    optimizer: Any = sys.modules["torch.optim.optimizer"]
    tables = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
    kept = [dict(table) for table in tables]
    assert torch is session.torch

    def switch(*, on: bool) -> None:
        (session.leave if on else session.enter)()
        vars(module).pop("_compiled_call_impl", None)
        for table, entries in zip(tables, kept, strict=True):
            table.clear()
            if on:
                table.update(entries)
        if on and entry is not None:
            vars(module)["_compiled_call_impl"] = entry

    entry = None
    switch(on=True)
    for _ in range(200):
        call()
    entry = vars(module).get("_compiled_call_impl")
    begin = time.perf_counter()
    for _ in range(20):
        call()
    block_s = GPU_BLOCK_S if is_gpu else BLOCK_S
    count = max(5, int(block_s / ((time.perf_counter() - begin) / 20)))
    plain, costs = [], []
    for pair in range(pairs):
        took = {}
        for on in (True, False) if pair % 2 else (False, True):
            switch(on=on)
            took[on] = _block(call, count, is_gpu=is_gpu)
        plain.append(took[False])
        costs.append(took[True] - took[False])
    return statistics.median(plain) / 1e3, statistics.median(costs) / 1e3


def _block(call: Callable[[], Any], count: int, *, is_gpu: bool) -> float:
    """Return the nanoseconds of a call: the fastest of a block, on a GPU the block's mean."""
    if is_gpu:
        _wait(is_gpu)
        begin_ns = time.perf_counter_ns()
        for _ in range(count):
            call()
        _wait(is_gpu)
        return (time.perf_counter_ns() - begin_ns) / count
    times = []
    for _ in range(count):
        begin_ns = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin_ns)
    return min(times)


if __name__ == "__main__":
    main()
