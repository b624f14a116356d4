"""What the work of a comparison is called: kernels on a GPU, operators on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.runview import RunView
from analysis.verdict import is_cpu_run

RanOn = Literal["gpu", "cpu", "mixed"]
"""Where the runs of a comparison ran."""
_PHASES = {"host": "host time", "projected": "GPU projection"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How texts of a comparison name what ran."""

    device: str
    work: str
    "One of them: kernel."
    works: str
    time: str
    "Their time: kernel time."
    calls: str
    "How often one ran: launches."


WORDS: dict[RanOn, Words] = {
    "gpu": Words(
        device="GPU", work="kernel", works="kernels", time="kernel time", calls="launches"
    ),
    "cpu": Words(
        device="CPU", work="operator", works="operators", time="operator time", calls="calls"
    ),
    "mixed": Words(
        device="device",
        work="kernel or operator",
        works="kernels and operators",
        time="kernel or operator time",
        calls="launches",
    ),
}


def fall_text(mode: str, per: str, device: RanOn) -> str:
    """Return what a waterfall divides: of steps the span is each one's time."""
    time = WORDS[device].time
    if mode == "span":
        return "time of a step" if per == "step" else f"first to last GPU operation, {_of(per)}"
    return f"{time}{' by operator' if mode == 'operators' else ''}, {_of(per)}"


def _of(per: str) -> str:
    return "whole capture" if per == "capture" else f"per {per}"


def device_of(views: Sequence[RunView]) -> RanOn:
    """Return where these runs ran; `mixed` where some ran on a GPU and some on a CPU."""
    seen = {is_cpu_run(view) for view in views}
    return "mixed" if len(seen) > 1 else "cpu" if True in seen else "gpu"


def metric_text(name: str, device: RanOn) -> str:
    """Return a metric as texts call it: `kernel time`, `kernel time of forward`."""
    words = WORDS[device]
    kind, _, phase = name.partition(":")
    if name == "kernel_time":
        return words.time
    if phase and (kind == "kernel" or kind in _PHASES):
        return f"{_PHASES.get(kind, words.time)} of {phase}"
    text = name.replace("_", " ").replace("num ", "number of ")
    return text if device == "mixed" else text.replace("kernel", words.work)
