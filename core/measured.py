"""What was measured of a GPU, as text."""

from collections.abc import Mapping
from typing import Any

from core.gpus import datasheet_peaks

FIGURES = ("peaks", "noise_floor_frac", "noise_floors", "measured_at")
"""What a GPU's facts tell of it once it was measured."""

UNITS = {"B/s": (1e9, "GB/s"), "FLOP/s": (1e12, "TFLOP/s"), "ns": (1e3, "us")}
"""Unit of a peak -> (divisor, unit that is shown)."""


def peak_table(facts: Mapping[str, Any]) -> str:
    """Return the figures of `worker.measure` for one GPU: value, unit, share of the datasheet's."""
    sheet = datasheet_peaks(facts["gpu"]["model"])
    clocks = facts["clocks"].get("during", {}).get("sm_clock_mhz", {})
    at_clock = f", SM clock up to {clocks['max']:.0f} MHz" if "max" in clocks else ""
    lines = [f"{facts['device']}, {facts['measured_at']}{at_clock}"]
    for name, record in facts["peaks"].items():
        divisor, unit = (1e12, "TOP/s") if "int8" in name else UNITS[record["unit"]]
        share = f"  {record['value'] / sheet[name]:4.0%} of datasheet" if name in sheet else ""
        lines.append(f"  {name:24} {record['value'] / divisor:10.3f} {unit:8}{share}".rstrip())
    lines += [f"  {name:24} not measured: {why}" for name, why in facts["skipped"].items()]
    for job, noise in facts["noise"].items():
        count = len(noise["process_medians_ns"])
        name = f"noise, {job.replace('_', '-')} job"
        lines.append(f"  {name:24} {noise['floor_frac'] * 100:10.2f} %  over {count} processes")
    if facts["noise_floor_frac"] is not None:
        lines.append(f"  {'noise floor (larger)':24} {facts['noise_floor_frac'] * 100:10.2f} %")
    return "\n".join(lines)
