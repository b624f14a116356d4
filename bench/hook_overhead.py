"""What the hooks of `warpboard profile` cost a step: `python -m bench.hook_overhead --device cuda`.

Blocks of steps with and without the hooks take turns in one process, and each step is timed by the
host's clock, which is what short steps wait for. The cost is given for each kind of step: those
that are only counted, and those with one or two CUDA events. `--training` adds an optimizer. Run it
with a Python that has torch. `bench/profile_overhead` measures whole programs by their own timers.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HOOKS = Path(__file__).resolve().parents[1] / "worker" / "hooks"
BLOCK_S, LEAST_STEPS = 0.2, 160
NUM_LEFT_OUT = 70
"""Steps after the hooks are back, in which groups form again."""
NUM_WARM_UP = 2500
"""Until groups of steps of 1 ms are as long as they become."""


def main() -> None:
    """Start again with the hooks inside, or measure."""
    if "WARPBOARD_PROFILE" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            settings = json.dumps({"pass": "clean", "dir": folder})
            hooks = str(_arguments().hooks)
            env = {**os.environ, "WARPBOARD_PROFILE": settings, "PYTHONPATH": hooks}
            sys.exit(os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], env))
    Measurement(_arguments()).run()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--step-us", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--hooks", type=Path, default=HOOKS, help="folder of another version's")
    return parser.parse_args()


class Measurement:
    """Steps of one module of as many layers as `--step-us` asks for."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        self.args, self.torch = args, torch
        if args.device == "cpu":
            torch.set_num_threads(1)
        self.session = sys.modules["warpboard_hooks"].current()
        optimizer: Any = sys.modules["torch.optim.optimizer"]
        self.hooks = optimizer._global_optimizer_post_hooks
        self.kept = dict(self.hooks)
        self.entry: Any = None

    def run(self) -> None:
        """Measure for `--seconds`, and print what a step of each kind costs."""
        self.net, self.step = self._make(8)
        self._switch(on=False)
        took_s = statistics.median(self._times(300, lambda: "off")[1] for _ in range(3))
        num_layers = max(1, round(8 * self.args.step_us * 1e-6 / took_s))
        self._switch(on=True)
        self.net, self.step = self._make(num_layers)
        for _ in range(NUM_WARM_UP):
            self.step()
        self.entry = vars(self.net).get("_compiled_call_impl")
        count = max(LEAST_STEPS, int(BLOCK_S / (self.args.step_us * 1e-6)))
        times: dict[str, list[float]] = defaultdict(list)
        differences_us: list[float] = []
        until_s = time.perf_counter() + self.args.seconds
        while time.perf_counter() < until_s:
            means = {}
            for on in (True, False) if len(differences_us) % 2 else (False, True):
                self._switch(on=on)
                for _ in range(NUM_LEFT_OUT if on else 3):
                    self.step()
                self._wait()
                self.session.look(time.perf_counter_ns())
                rows, _ = self._times(count, self._kind if on else lambda: "off")
                means[on] = trimmed_mean([s for s, _ in rows])
                for s, kind in rows:
                    times[kind].append(s * 1e6)
            differences_us.append((means[True] - means[False]) * 1e6)
        self._print(num_layers, times, differences_us)

    def _make(self, num_layers: int) -> tuple[Any, Callable[[], None]]:
        nn = self.torch.nn
        width, rows = (256, 64) if self.args.device == "cuda" else (16, 4)
        layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(num_layers)]
        net = nn.Sequential(*layers).to(self.args.device)
        x = self.torch.randn(rows, width, device=self.args.device)
        optimizer = self.torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9)

        def infer() -> None:
            with self.torch.no_grad():
                net(x)

        def train() -> None:
            net(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return net, train if self.args.training else infer

    def _switch(self, *, on: bool) -> None:
        if self.session.pace.is_counting:
            self.session.settle()
        (self.session.leave if on else self.session.enter)()
        vars(self.net).pop("_compiled_call_impl", None)
        self.hooks.clear()
        if on:
            self.hooks.update(self.kept)
        if on and self.entry is not None:
            vars(self.net)["_compiled_call_impl"] = self.entry

    def _times(self, count: int, kind: Callable[[], str]) -> tuple[list[tuple[float, str]], float]:
        """Return (time, kind) of so many steps in s, and the median time."""
        rows = []
        for _ in range(count):
            self.before = self._written()
            begin_s = time.perf_counter()
            self.step()
            rows.append((time.perf_counter() - begin_s, kind()))
        self._wait()
        return rows, statistics.median(s for s, _ in rows)

    def _written(self) -> int:
        records = self.session.records
        return records.num_records if records is not None else 0

    def _kind(self) -> str:
        if self._written() == self.before:
            return "counted"
        if not self.session.pace.on_gpu:
            return "written"
        return "two events" if self.session.pace.times_end else "one event"

    def _wait(self) -> None:
        if self.args.device == "cuda":
            self.torch.cuda.synchronize()

    def _print(
        self, num_layers: int, times: dict[str, list[float]], differences_us: list[float]
    ) -> None:
        plain = times.pop("off")
        plain_us, total = trimmed_mean(plain), sum(map(len, times.values()))
        device = self.torch.cuda.get_device_name() if self.args.device == "cuda" else "CPU"
        what = "training" if self.args.training else "inference"
        print(
            f"{what}, {num_layers} layers: off {plain_us:.1f} us +- {error_of_mean(plain):.1f} "
            f"({device}, torch {self.torch.__version__}), groups of {self.session.pace.size}"
        )
        cost_us = 0.0
        for kind, own in sorted(times.items()):
            more_us = trimmed_mean(own) - plain_us
            cost_us += more_us * len(own) / total
            error_us = error_of_mean(own)
            print(
                f"   {kind:12} {len(own):6} steps ({len(own) / total:6.2%}): "
                f"{more_us:7.2f} us +- {error_us:.2f}"
            )
        block_us = trimmed_mean(differences_us)
        print(
            f"   by kind: {cost_us:.2f} us = {cost_us / plain_us:.2%}; by blocks: {block_us:.2f} "
            f"+- {error_of_mean(differences_us):.2f} us = {block_us / plain_us:.2%} "
            f"({len(differences_us)} pairs)"
        )


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without the tenth at either end."""
    return statistics.fmean(_middle(values))


def error_of_mean(values: Sequence[float]) -> float:
    """Return about how good such a mean is."""
    middle = _middle(values)
    return 1.2 * statistics.stdev(middle) / len(values) ** 0.5 if len(middle) > 1 else float("nan")


def _middle(values: Sequence[float]) -> list[float]:
    cut = len(values) // 10
    return sorted(values)[cut : len(values) - cut]


if __name__ == "__main__":
    main()
