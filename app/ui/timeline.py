"""The kernel timeline: a canvas in the page, drawn from Arrow columns; no build step, no iframe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from app.ui.colours import category_colour
from app.ui.timeline_data import Window
from app.ui.timeline_load import Timeline

_HERE = Path(__file__).parent
_HTML = """
<div class="wrap">
  <div class="tools">
    <button type="button" data-do="reset">Whole run</button>
    <button type="button" data-do="in" aria-label="Zoom in">+</button>
    <button type="button" data-do="out" aria-label="Zoom out">&minus;</button>
    <button type="button" data-do="left" aria-label="Move left">&larr;</button>
    <button type="button" data-do="right" aria-label="Move right">&rarr;</button>
    <span class="note"></span>
  </div>
  <canvas tabindex="0" role="img"></canvas>
  <div class="tip" role="status"></div>
</div>
"""

_COMPONENT = st.components.v2.component(
    "warpboard_timeline",
    html=_HTML,
    css=(_HERE / "timeline.css").read_text(encoding="utf-8"),
    js=(_HERE / "timeline.js").read_text(encoding="utf-8"),
)

_KIND_CATEGORY = {"memcpy": "copy", "memset": "fill", "graph": "unknown"}


def draw_timeline(
    timeline: Timeline,
    view: Window,
    *,
    categories: Mapping[str, str],
    short_names: Mapping[str, str],
    key: str,
    asked: tuple[float, float] | None,
) -> tuple[tuple[float, float] | None, str | None]:
    """Draw one window; return the window the reader zoomed to, and the kernel clicked, or None.

    `categories` and `short_names` map full kernel names; a transfer is coloured as what it is.
    """
    kinds = zip(timeline.names, timeline.kinds, strict=True)
    classes = [_KIND_CATEGORY.get(k) or categories.get(n, "unknown") for n, k in kinds]
    palette = sorted(set(classes))
    meta: dict[str, Any] = {
        "lanes": list(timeline.lanes),
        "rows": list(timeline.range_rows),
        "names": [short_names.get(n, n)[:160] for n in timeline.names],
        "paths": list(timeline.paths),
        "classes": [palette.index(c) for c in classes],
        "palette": [{"name": c, "colour": category_colour(c)} for c in palette],
        "extent": float(timeline.extent_ns),
        "asked": list(asked) if asked else None,
        "merged": view.is_merged,
        "total": view.num_spans,
        "rangeNames": view.ranges["name"].to_list(),
    }
    result = _COMPONENT(
        key=key,
        data={"spans": view.spans, "ranges": view.ranges.drop(columns="name"), "meta": meta},
        on_window_change=lambda: None,
        on_selected_change=lambda: None,
    )
    chosen = result.window
    zoomed = (float(chosen[0]), float(chosen[1])) if chosen else None
    selected = result.selected
    return zoomed, timeline.names[int(selected)] if selected is not None else None
