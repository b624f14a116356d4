"""What this very GPU (or CPU) reaches: copy bandwidth, GEMM rates, launch overhead, noise floor.

`python -m worker.measure [--json] [--gpu ...] [--save]`. A datasheet's peak is out of reach for
some cards and clocks; utilisation is relative to these numbers. torch only. Each figure is the
median of many timed repetitions after a warm-up. The noise floor is the relative spread, over
several processes, of the medians of one and the same job: a difference below it is no difference.
Two jobs are run, one that keeps the GPU busy and one of many tiny launches that waits for the host:
`noise_floors` has both, and `noise_floor_frac` the larger, for a run of which kind is not known.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from core.config import ROOT
from core.errors import AppError, UserError
from core.measured import FIGURES, peak_table
from core.python import module_command
from worker.clocks import ClockMonitor
from worker.execute import write_json
from worker.joblog import utc_now
from worker.passes import GpuTarget
from worker.targets import find_targets, measured_key, measured_path

WARM_UP_S = 0.3
MEASURE_S = 0.6
MIN_REPEATS, MAX_REPEATS = 5, 200


class Timer:
    """Times on the first visible GPU, or on the CPU without one."""

    def __init__(self) -> None:
        import torch

        self.on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.on_gpu else "cpu")

    @property
    def device_name(self) -> str:
        import torch

        return torch.cuda.get_device_name(0) if self.on_gpu else "CPU"

    def free_bytes(self) -> int:
        """Return free device memory, on a CPU the host's available memory."""
        import torch

        if self.on_gpu:
            return int(torch.cuda.mem_get_info()[0])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def median_s(self, work: Callable[[], Any]) -> float:
        """Return the median seconds of one call after a warm-up."""
        once_s = self._warm_up(work)
        repeats = min(MAX_REPEATS, max(MIN_REPEATS, int(MEASURE_S / max(once_s, 1e-7))))
        times = [self._time_gpu(work) if self.on_gpu else _time_cpu(work) for _ in range(repeats)]
        return statistics.median(times)

    def _warm_up(self, work: Callable[[], Any]) -> float:
        """Run for a while, at least twice; return the seconds of the last call."""
        import torch

        started = time.perf_counter()
        calls = 0
        while calls < 2 or time.perf_counter() - started < WARM_UP_S:
            before = time.perf_counter()
            work()
            if self.on_gpu:
                torch.cuda.synchronize()
            once_s = time.perf_counter() - before
            calls += 1
        return once_s

    def _time_gpu(self, work: Callable[[], Any]) -> float:
        import torch

        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def _time_cpu(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


NOISE_PROCESSES = 6
CPU_GEMM_SIZE = 1024
GPU_GEMM_SIZE = 8192
CPU_COPY_BYTES = 256 << 20
GPU_COPY_BYTES = 4 << 30
MEMORY_SHARE_FRAC = 0.2
"""At most this part of the free memory is used for one operand."""
LAUNCHES = 2000
TINY_LAUNCHES = 500


def measure(target: GpuTarget, model: str, *, with_noise: bool = True) -> dict[str, Any]:
    """Return peaks, noise floor, clocks and date. Spawns processes; takes a minute or two."""
    monitor = ClockMonitor(target.smi_selector)
    monitor.start()
    try:
        peaks = _in_own_process("--peaks-only", target)
        processes = NOISE_PROCESSES if with_noise else 0
        medians = [_in_own_process("--noise-job", target) for _ in range(processes)]
    finally:
        clocks = monitor.stop()
    at = utc_now()
    clock_mhz = clocks.get("during", {}).get("sm_clock_mhz", {}).get("max")
    noise = {job: _noise([m[job] for m in medians]) for job in (medians[0] if medians else ())}
    floors = [n["floor_frac"] for n in noise.values() if n["floor_frac"] is not None]
    return {
        "schema_version": 1,
        "measured_at": at,
        "gpu": {"model": model, **{k: v for k, v in target.facts.items() if k not in FIGURES}},
        "device": peaks["device"],
        "environment": peaks["environment"],
        "peaks": {
            name: {**record, "measured_at": at}
            | ({"sm_clock_mhz": round(clock_mhz)} if clock_mhz is not None else {})
            for name, record in peaks["peaks"].items()
        },
        "noise_floor_frac": max(floors, default=None),
        "noise_floors": {job: n["floor_frac"] for job, n in noise.items()},
        "noise": noise,
        "clocks": clocks,
        "skipped": peaks["skipped"],
    }


def measure_and_keep(
    model: str, target: GpuTarget, *, with_noise: bool = True, keep: bool = True
) -> dict[str, Any]:
    """Return `measure`'s figures; kept, this data folder's workers and bundles carry them."""
    facts = measure(target, model, with_noise=with_noise)
    if keep:
        path = measured_path(measured_key(target))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, facts)
    return facts


def _noise(medians_ns: list[float]) -> dict[str, Any]:
    return {"process_medians_ns": medians_ns, "floor_frac": noise_floor(medians_ns)}


def noise_floor(medians_ns: list[float]) -> float | None:
    """Return (largest - smallest) / median of the process medians; None below two processes.

    Of six processes this spread is about the half-width of the 95 % interval of the ratio of two.
    """
    if len(medians_ns) < 2:
        return None
    return (max(medians_ns) - min(medians_ns)) / statistics.median(medians_ns)


def _in_own_process(what: str, target: GpuTarget) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if target.visible_devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = target.visible_devices
    python = os.environ.get("WARPBOARD_PYTHON") or sys.executable
    done = subprocess.run(
        module_command("worker.measure", what, python=python),
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        errors = done.stderr.strip().splitlines()
        raise AppError(f"measurement failed: {errors[-1] if errors else 'no output'}")
    return dict(json.loads(lines[-1]))


def measure_peaks() -> dict[str, Any]:
    """Return peaks by name with units; what the device cannot do is in `skipped` and why."""
    import torch

    timer = Timer()
    peaks: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    jobs: dict[str, tuple[str, Callable[[], float]]] = {
        "copy_bytes_per_s": ("B/s", lambda: _copy_rate(timer)),
        "memory_bytes_per_s": ("B/s", lambda: _memory_rate(timer)),
    }
    for dtype in _gemm_dtypes(timer):
        jobs[f"gemm_{dtype}_flops_per_s"] = ("FLOP/s", partial(_gemm_rate, timer, dtype))
    if timer.on_gpu:
        jobs["launch_ns"] = ("ns", lambda: _launch_ns(timer))
    for name, (unit, job) in jobs.items():
        try:
            peaks[name] = {"value": job(), "unit": unit}
        except RuntimeError as error:  # a dtype that this device or build does not have
            skipped[name] = str(error).splitlines()[0][:300]
        if timer.on_gpu:
            torch.cuda.empty_cache()
    environment = {"torch": torch.__version__, "cuda": torch.version.cuda}
    return {
        "peaks": peaks,
        "skipped": skipped,
        "device": timer.device_name,
        "environment": {k: v for k, v in environment.items() if v},
    }


def _gemm_dtypes(timer: Timer) -> tuple[str, ...]:
    return ("fp32", "tf32", "bf16", "fp16", "fp8", "int8") if timer.on_gpu else ("fp32",)


def _num_copy_bytes(timer: Timer) -> int:
    wanted = GPU_COPY_BYTES if timer.on_gpu else CPU_COPY_BYTES
    return min(wanted, int(timer.free_bytes() * MEMORY_SHARE_FRAC)) // 4 * 4


def _copy_rate(timer: Timer) -> float:
    """Return bytes read plus bytes written per second of a device-to-device copy."""
    import torch

    size = _num_copy_bytes(timer)
    source = torch.ones(size, dtype=torch.uint8, device=timer.device)
    target = torch.empty_like(source)
    return 2 * size / timer.median_s(lambda: target.copy_(source))


def _memory_rate(timer: Timer) -> float:
    """Return the most bytes moved per second by a copy, a sum (it only reads) and an addition."""
    import torch

    size = _num_copy_bytes(timer)
    a = torch.ones(size // 4, device=timer.device)
    b = torch.ones_like(a)
    return max(
        2 * size / timer.median_s(lambda: b.copy_(a)),
        size / timer.median_s(a.sum),
        3 * size / timer.median_s(lambda: torch.add(a, b, out=b)),
    )


def _gemm_rate(timer: Timer, dtype: str) -> float:
    """Return the fastest rate of square products: 2 n^3 over the time of one.

    Random data, since zeros run faster. Which size and which layout of the operands is fastest
    depends on GPU and dtype, so that all four layouts are tried, and the best one again at twice
    the size.
    """
    size = GPU_GEMM_SIZE if timer.on_gpu else CPU_GEMM_SIZE
    while size > 512 and 4 * size * size > timer.free_bytes() * MEMORY_SHARE_FRAC:
        size //= 2
    layouts = _GEMM_LAYOUTS if dtype not in ("fp8", "int8") else _GEMM_LAYOUTS[1:2]
    rate, layout = max((_product_rate(timer, dtype, size, layout), layout) for layout in layouts)
    if timer.on_gpu and 4 * (2 * size) ** 2 <= timer.free_bytes() * MEMORY_SHARE_FRAC:
        rate = max(rate, _product_rate(timer, dtype, 2 * size, layout))
    return rate


_GEMM_LAYOUTS = ((False, False), (False, True), (True, False), (True, True))
"""Whether the left and the right operand lie transposed in memory."""


def _product_rate(timer: Timer, dtype: str, size: int, layout: tuple[bool, bool]) -> float:
    """Return the operations per second of one product of two random size x size matrices."""
    import torch

    def operand(*, is_transposed: bool) -> Any:
        values = torch.randn(size, size, device=timer.device)
        if dtype == "int8":
            values = values.mul_(40).clamp_(-127, 127)  # most of the range, as quantised weights
        made = values.to(getattr(torch, _GEMM_KINDS.get(dtype, "float32")))
        return made.t() if is_transposed else made

    a, b = (operand(is_transposed=t) for t in layout)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        return 2 * size**3 / timer.median_s(_product(dtype, a, b))
    finally:
        torch.set_float32_matmul_precision(before)


_GEMM_KINDS = {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn", "int8": "int8"}
"""PyTorch's names of the types that are not float32."""


def _product(dtype: str, a: Any, b: Any) -> Callable[[], Any]:
    import torch

    if dtype == "int8":
        return lambda: torch._int_mm(a, b)
    if dtype == "fp8":
        unit_scale = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(
            a,
            b,
            scale_a=unit_scale,
            scale_b=unit_scale,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
    out = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    return lambda: torch.mm(a, b, out=out)


def _launch_ns(timer: Timer) -> float:
    """Return the time from one launch to the next in a stream of kernels that do nothing."""
    import torch

    x = torch.zeros(1, device=timer.device)

    def launches() -> None:
        for _ in range(LAUNCHES):
            x.zero_()

    return timer.median_s(launches) / LAUNCHES * 1e9


def noise_jobs() -> dict[str, float]:
    """Return the median ns of a job that keeps the device busy and of one of tiny launches."""
    import torch

    timer = Timer()
    size = 4096 if timer.on_gpu else 512
    kind = torch.bfloat16 if timer.on_gpu else torch.float32
    x = torch.randn(size, size, device=timer.device).to(kind)
    tiny = torch.zeros(16, device=timer.device)

    def busy() -> None:
        y = x
        for _ in range(8):
            y = torch.relu(y @ x)

    def launches() -> None:
        for _ in range(TINY_LAUNCHES):
            tiny.add_(1.0)

    jobs = {"gpu_bound": busy, "launch_bound": launches}
    return {name: timer.median_s(job) * 1e9 for name, job in jobs.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m worker.measure", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document: {measured: [...]}")
    parser.add_argument("--gpu", default="all", help="ordinal, UUID, model, cpu or all (default)")
    parser.add_argument("--save", action="store_true", help="keep for the data folder's workers")
    parser.add_argument("--no-noise", action="store_true", help="leave the noise floor out")
    parser.add_argument("--peaks-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--noise-job", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.peaks_only or args.noise_job:
        print(json.dumps(measure_peaks() if args.peaks_only else noise_jobs()))
        return 0
    keep = args.save or bool(os.environ.get("WARPBOARD_DATA"))
    try:
        measured = [
            measure_and_keep(model, target, with_noise=not args.no_noise, keep=keep)
            for model, target in find_targets(args.gpu)
        ]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except AppError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    document = {"schema_version": 1, "measured": measured}
    print(json.dumps(document) if args.json else "\n\n".join(map(peak_table, measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
