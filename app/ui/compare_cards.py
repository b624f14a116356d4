"""The headline numbers of a comparison: what changed in the profile, from one run a side."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from analysis.compare import Comparison
from analysis.compare.labels import WORDS
from analysis.definitions import tooltip
from analysis.idle import CLEAN
from analysis.per_step import basis_of, kernel_time_of_one, num_kernels_of_one
from analysis.runview import RunView
from app.ui.format import UNKNOWN, bytes_, count, duration, percent, significant
from app.ui.run_cards import OF_OPERATORS
from app.ui.widgets import Card, cards, plain_markdown


def headline(found: Comparison, views_a: Sequence[RunView], views_b: Sequence[RunView]) -> None:
    """Draw what changed in the profile: the runs that the waterfall is made from."""
    fall = found.waterfall
    named = {v.run.id: v for v in (*views_a, *views_b)}
    a, b = (named[fall.run_a], named[fall.run_b]) if fall else (views_a[0], views_b[0])
    has_latency = any(len(view.samples) for view in (*views_a, *views_b))
    if not has_latency:
        st.caption(
            "No clean pass on either side, so the latency is not known: all of this was measured "
            "under a profiler, which adds time of its own."
        )
    if len(views_a) + len(views_b) > 2:
        st.caption(plain_markdown(f"Profile of one run a side: {a.run.name}, {b.run.name}."))
    words = WORDS[found.device]
    of = "" if found.device == "gpu" else OF_OPERATORS
    shown = [
        _latency(found, a, b),
        _of_one(a, b, "kernel_time_ns", words.time.capitalize(), of),
        _of_one(a, b, "num_kernels", words.calls.capitalize(), of),
        _idle(a, b),
        _share(a, b, "gemm_frac", "GEMM and GEMV"),
        _memory(a, b),
    ]
    known = [card for card in shown if card.value.strip(f"{UNKNOWN} \u2192")]
    cards(known or shown)


_OF_ONE = {"kernel_time_ns": kernel_time_of_one, "num_kernels": num_kernels_of_one}


def _of_one(a: RunView, b: RunView, key: str, label: str, of: str) -> Card:
    """Return a figure of a step of both, by the median of the regular ones."""
    values = [_OF_ONE[key](view) for view in (a, b)]
    shown = []
    for value in values:
        if value is None:
            shown.append(UNKNOWN)
        elif key.endswith("_ns"):
            shown.append(duration(value))
        else:
            shown.append(count(int(value)) if value.is_integer() else significant(value))
    known = values[0] and values[1] is not None
    note = f"{significant(values[1] / values[0])} \u00d7" if known else "not known on both sides"  # type: ignore[operator]
    bases = {basis.word for view in (a, b) if (basis := basis_of(view)) is not None}
    one = " or ".join(sorted(bases)) or "step"
    text = of + tooltip(key)
    return Card(label=f"{label} / {one}", value=" \u2192 ".join(shown), note=note, definition=text)


def _share(a: RunView, b: RunView, key: str, label: str) -> Card:
    left, right = a.summary.get(key), b.summary.get(key)
    card = _two_shares(left, right, key, label)
    if key != "gemm_frac" or left is None or right is None:
        return card
    unknown = " \u2192 ".join(percent(v.summary.get("unclassified_frac")) for v in (a, b))
    return replace(card, note=f"{card.note}; not recognised {unknown}")


def _two_shares(left: float | None, right: float | None, key: str, label: str) -> Card:
    note = "not known on both sides"
    if left is not None and right is not None:
        note = f"{100 * (right - left):+.1f} percentage points".replace("-", "\u2212")
    value = f"{percent(left)} \u2192 {percent(right)}"
    return Card(label=label, value=value, note=note, definition=tooltip(key))


def _idle(a: RunView, b: RunView) -> Card:
    """Return the idle share of both; if their sources differ, the profiled one of both."""
    sources = {v.summary.get("idle_source") for v in (a, b)}
    if len(sources) > 1:
        return _share(a, b, "profiled_idle_frac", "GPU idle, profiled")
    where = "clean pass" if CLEAN in sources else "profiled: with the profiler's own cost"
    left, right = (v.by_step.facts.get("idle_frac") for v in (a, b))
    if CLEAN not in sources and left is not None and right is not None:
        card = _two_shares(left, right, "idle_frac", "GPU idle in a step")
    else:
        card = _share(a, b, "idle_frac", "GPU idle")
    return replace(card, note=f"{card.note}; {where}")


def _latency(found: Comparison, a: RunView, b: RunView) -> Card:
    values = [(v.summary.get("latency_ms") or {}).get("median") for v in (a, b)]
    if found.metric == "latency":
        values = [found.a.median, found.b.median]  # Over all runs of a side.
    missing = [side for side, value in zip("AB", values, strict=True) if value is None]
    note = f"no clean pass on side {' and '.join(missing)}" if missing else "clean pass, medians"
    return Card(
        label="Latency",
        value=" \u2192 ".join(duration(v * 1e6) if v is not None else UNKNOWN for v in values)
        if len(missing) < 2
        else UNKNOWN,
        note=note,
        definition=tooltip("latency_ms.median"),
    )


def _memory(a: RunView, b: RunView) -> Card:
    left, right = (v.summary.get("peak_memory_bytes") for v in (a, b))
    known = left is not None and right is not None
    note = f"{bytes_(right - left)} more" if known and right >= left else "not known on both sides"  # type: ignore[operator]
    if known and right < left:  # type: ignore[operator]
        note = f"{bytes_(left - right)} less"  # type: ignore[operator]
    return Card(
        label="Peak memory",
        value=f"{bytes_(left)} \u2192 {bytes_(right)}",
        note=note,
        definition=tooltip("peak_memory_bytes"),
    )
