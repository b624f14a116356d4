"""The kernel timeline: loaded spans, the window in view, the canvas that draws it."""
