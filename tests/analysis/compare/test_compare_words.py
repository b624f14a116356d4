"""What ran is called by its name: kernels on a GPU, operators on a CPU, both where it is mixed."""

import pytest

from analysis.compare.engine import compare
from analysis.compare.labels import fall_text, metric_text
from tests.analysis.compare.views import build_view

ONE = ((2.0, 2.1, 2.2),)


@pytest.mark.parametrize(
    ("gpus", "device", "machine"),
    [
        (("NVIDIA H100 80GB HBM3",) * 2, "gpu", "GPU"),
        (("cpu", "cpu"), "cpu", "CPU"),
        (("cpu", "NVIDIA H100 80GB HBM3"), "mixed", "device"),
    ],
)
def test_reasons_name_the_machine_that_the_runs_were_on(
    gpus: tuple[str, str], device: str, machine: str
) -> None:
    a, b = (build_view(ONE, id=str(i), gpu_model=gpu) for i, gpu in enumerate(gpus))
    found = compare([a], [b])
    assert found.as_dict()["device"] == device
    assert f"noise floor of this {machine} is not known" in found.reason


def test_metrics_are_named_by_what_ran() -> None:
    assert metric_text("kernel_time", "cpu") == "operator time"
    assert metric_text("kernel:forward", "gpu") == "kernel time of forward"
    assert metric_text("host:forward", "cpu") == "host time of forward"
    assert metric_text("tokens_per_s", "gpu") == "tokens per s"


@pytest.mark.parametrize(
    ("mode", "per", "told"),
    [
        ("span", "step", "time of a step"),
        ("span", "capture", "first to last GPU operation, whole capture"),
        ("kernel_time", "step", "kernel time, per step"),
        ("operators", "capture", "kernel time by operator, whole capture"),
    ],
)
def test_a_waterfall_says_what_it_divides(mode: str, per: str, told: str) -> None:
    assert fall_text(mode, per, "gpu") == told
