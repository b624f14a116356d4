"""Clocks, temperature, power and throttling of each pass of a run, as its bundle recorded them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.runview import RunView
from captures.manifest import CLOCKS
from core.states import Pass

REASONS = {
    "applications_clocks_setting": "clocks set by an application",
    "sw_power_cap": "power limit",
    "hw_slowdown": "hardware slow-down",
    "sync_boost": "held to the clock of other GPUs",
    "sw_thermal_slowdown": "too warm, by the driver",
    "hw_thermal_slowdown": "too warm, by the hardware",
    "hw_power_brake_slowdown": "power brake of the host",
    "display_clock_setting": "display clocks",
}
"""NVML's reasons for clocks below the highest, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Smallest, median and largest of the readings, one per second."""

    least: float
    median: float
    greatest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassClocks:
    """One process of one pass. None is what the GPU did not tell."""

    pass_name: str
    process: int
    sm_clock_mhz: Reading | None
    memory_clock_mhz: Reading | None
    temperature_c: Reading | None
    power_w: Reading | None
    utilization_pct: Reading | None
    reasons: tuple[str, ...]
    "NVML's reasons seen under load."
    is_throttled: bool | None
    "A reason that costs speed was seen; None where reasons were not read."

    @property
    def reason_texts(self) -> tuple[str, ...]:
        return tuple(REASONS.get(reason, reason) for reason in self.reasons)


def pass_clocks(view: RunView) -> tuple[PassClocks, ...]:
    """Return what was read of the GPU in each pass, in the order they ran; () of files."""
    clocks = (_of_pass(record) for record in view.passes)
    return tuple(p for p in clocks if p is not None)


def throttle_reasons(view: RunView) -> tuple[str, ...]:
    """Return, in words, why the GPU lowered its clocks in the clean pass; () where it did not."""
    clean = [p for p in pass_clocks(view) if p.pass_name == Pass.CLEAN and p.is_throttled]
    return tuple(dict.fromkeys(text for p in clean for text in p.reason_texts))


def _of_pass(record: Mapping[str, Any]) -> PassClocks | None:
    clocks = record.get("clocks") or {}
    during = clocks.get("during") or {}
    around = [clocks.get("before") or {}, clocks.get("after") or {}]
    readings = {name: _reading(name, during, around) for name in CLOCKS}
    if not any(readings.values()):
        return None
    return PassClocks(
        pass_name=str(record.get("pass", "")),
        process=int(record.get("process") or 0),
        reasons=tuple(str(r) for r in during.get("throttle_reasons") or ()),
        is_throttled=during.get("is_throttled"),
        **readings,
    )


def _reading(
    name: str, during: Mapping[str, Any], around: list[Mapping[str, Any]]
) -> Reading | None:
    """Return what was read during the pass, of a pass under a second what was read around it."""
    inside = during.get(name)
    if isinstance(inside, Mapping):
        return Reading(
            least=float(inside["min"]),
            median=float(inside["median"]),
            greatest=float(inside["max"]),
        )
    values = sorted(
        float(sample[name]) for sample in around if isinstance(sample.get(name), int | float)
    )
    if not values:
        return None
    return Reading(least=values[0], median=sum(values) / len(values), greatest=values[-1])
