"""Clocks, temperature, power and throttling of each pass of a run, in one line and a table."""

import pandas as pd
import streamlit as st

from analysis.pass_clocks import PassClocks, Reading, pass_clocks
from analysis.runview import RunView
from app.ui.format import UNKNOWN
from app.ui.widgets import plain_markdown, show_table, table_height
from core.states import Pass


def clocks(view: RunView) -> None:
    """Draw what the GPU's clocks did while the run was measured; nothing where nobody read them."""
    found = pass_clocks(view)
    if not found:
        return
    clean = [p for p in found if p.pass_name == Pass.CLEAN] or list(found)
    slowed = [p for p in clean if p.is_throttled]
    icon = ":material/thermostat:" if not slowed else ":material/speed:"
    with st.expander(plain_markdown(_line(clean, slowed)), icon=icon):
        rows = [_row(p) for p in found]
        show_table(
            pd.DataFrame(rows),
            height=table_height(rows, 420),
            alt="Clocks, temperature, power and throttling of each pass",
        )
        st.caption(
            "Median, with the smallest and largest reading where they differ; read once a second, "
            "of a pass under a second before and after it."
        )


def _line(clean: list[PassClocks], slowed: list[PassClocks]) -> str:
    """Return the clean pass in one line: typical clock, warmest, most power, throttling."""
    parts = []
    clocks_mhz = [p.sm_clock_mhz.median for p in clean if p.sm_clock_mhz]
    if clocks_mhz:
        parts.append(f"SM clock {sorted(clocks_mhz)[len(clocks_mhz) // 2]:.0f} MHz")
    for name, unit in (("temperature_c", "\u00b0C"), ("power_w", "W")):
        readings = [r for p in clean if (r := getattr(p, name))]
        if readings:
            parts.append(f"up to {max(r.greatest for r in readings):.0f} {unit}")
    if slowed:
        why = ", ".join(dict.fromkeys(text for p in slowed for text in p.reason_texts))
        parts.append(f"throttled in {len(slowed)} of {len(clean)} processes ({why})")
    elif any(p.is_throttled is False for p in clean):
        parts.append("not throttled")
    return " \u00b7 ".join(parts)


def _row(found: PassClocks) -> dict[str, str]:
    throttled = {None: UNKNOWN, False: "no", True: "yes"}[found.is_throttled]
    return {
        "pass": f"{found.pass_name} #{found.process}",
        "SM clock MHz": _text(found.sm_clock_mhz),
        "memory clock MHz": _text(found.memory_clock_mhz),
        "temperature \u00b0C": _text(found.temperature_c),
        "power W": _text(found.power_w),
        "GPU use %": _text(found.utilization_pct),
        "throttled": throttled,
        "reasons for lower clocks": ", ".join(found.reason_texts) or "none",
    }


def _text(reading: Reading | None) -> str:
    if reading is None:
        return UNKNOWN
    middle = f"{reading.median:.0f}"
    ends = (f"{reading.least:.0f}", f"{reading.greatest:.0f}")
    return middle if ends == (middle, middle) else f"{middle} ({ends[0]} to {ends[1]})"
