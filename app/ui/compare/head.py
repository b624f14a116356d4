"""The top of a comparison: the two sides, the verdict, the headline numbers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from analysis.colours import NEUTRAL
from analysis.compare.labels import WORDS, RanOn, metric_text
from analysis.compare.metrics import PROFILED_ITERATION, Metric
from analysis.compare.records import Comparison
from analysis.definitions import COMPARED
from analysis.idle import CLEAN
from analysis.per_step import basis_of, kernel_time_of_one, num_kernels_of_one
from analysis.runview import RunView
from app.charts.compare import interval
from app.ui import cached, data, links, style
from app.ui.compare.several import ACCENTS
from app.ui.format import UNKNOWN, bytes_, many, percent, significant, switch
from app.ui.overview_view import link_of
from app.ui.run.cards import OF_OPERATORS
from app.ui.shape import TELLING, device_text
from app.ui.widgets import Card, cards, chart, linked_select, plain_markdown, shown, two_figures
from core.numbers import decimal
from db.history import Repeats, find_repeats

_TITLES = {
    "faster": "B is faster",
    "slower": "B is slower",
    "no_difference": "No difference",
    "not_enough_samples": "Not enough samples",
    "not_comparable": "Not comparable",
}


def inputs() -> tuple[str, str, str]:
    """Draw the two sides and the metric; all three are in the address."""
    recent, _ = data.list_runs("status:done,oom", limit=500)
    names = dict(zip(recent["id"], recent["name"], strict=True))
    bar = st.columns([4, 4, 2], vertical_alignment="bottom")
    chosen = [_side(bar[i], names, key) for i, key in enumerate(("a", "b"))]
    metrics, device = data.metric_names(chosen[0], chosen[1])
    asked = st.query_params.get("metric")
    metric = linked_select(
        bar[2],
        "Metric",
        list(dict.fromkeys([*metrics, *([asked] if asked else [])])),
        param="metric",
        format_func=partial(_metric, is_known=metrics[0] == "latency", device=device),
        help="Latency comes from the clean pass; the other metrics from the profiled pass.",
    )
    return chosen[0], chosen[1], metric


def offered() -> None:
    """Offer, where no side is chosen, the stored runs that differ in one field."""
    offers = data.offered_comparisons()
    if not offers:
        return
    st.subheader("Runs that differ in one field", anchor=False)
    grid = st.grid("auto", min_column_width=330, border=True, gap="small")
    for offer in offers:
        with grid.cell(), st.container(gap="xxsmall"):
            link_of(offer)


def _metric(name: str, *, is_known: bool, device: RanOn) -> str:
    """Return how a metric is called: whether it was measured under a profiler is part of it."""
    if name == "latency":
        return "Latency" if is_known else "Latency (no clean pass on both sides)"
    if name == PROFILED_ITERATION:
        return "Iteration under the profiler"
    is_named = name in COMPARED and not (device == "cpu" and name == "kernel_time")
    if is_named:
        label, profiled = COMPARED[name].label, ", profiled" if COMPARED[name].is_profiled else ""
        return label if label.endswith(", profiled") else f"{label}{profiled}"
    text = metric_text(name, device)
    profiled = ", profiled" if Metric(name=name, unit="").is_profiled else ""
    return f"{text[0].upper()}{text[1:]}{profiled}"


def _side(place: object, names: dict[str, str], key: str) -> str:
    asked = st.query_params.get(key) or st.session_state.get(f"choice_{key}") or ""
    options = ["", *dict.fromkeys([*([asked] if asked else []), *names])]
    return linked_select(
        place,
        f"Side {key.upper()}",
        options,
        param=key,
        format_func=lambda value: _option(value, names),
        accept_new_options=True,
    )


def _option(value: str, names: dict[str, str]) -> str:
    if not value:
        return "choose a run"
    ids = value.split(",")
    known = [names[i] for i in ids if i in names]
    if len(ids) > 1 and known:
        return f"{known[0]} and {len(ids) - 1} more"
    return f"{names[value]}  ({value})" if value in names else value


def names(comparison: Comparison, a: Sequence[RunView], b: Sequence[RunView]) -> None:
    """Draw the title and what both sides share."""
    views = (*a, *b)
    devices = list(dict.fromkeys(map(device_text, views)))
    work = list(dict.fromkeys(v.run.workload for v in views if v.run.workload))
    style.header(title_of(comparison, a, b), [*work, *devices, *_shared(comparison, views)])


def title_of(comparison: Comparison, a: Sequence[RunView], b: Sequence[RunView]) -> str:
    """Return the variable's two values where that alone differs, else both names."""
    variable = comparison.intended if comparison.comparable else None
    if variable and variable.field in a[0].run.params:
        a_text, b_text = (switch(value or "unknown") for value in (variable.a, variable.b))
        return f"{variable.field} {a_text} \u2192 {b_text}"
    return f"{_name(a)} \u2192 {_name(b)}"


def _shared(comparison: Comparison, views: Sequence[RunView]) -> list[str]:
    """Return the telling parameters that are the same in all runs."""
    params = [v.run.params for v in views]
    return [
        f"{k} {params[0][k]}"
        for k in TELLING
        if params[0].get(k) not in (None, "", "custom")
        and all(p.get(k) == params[0][k] for p in params)
    ]


def _name(views: Sequence[RunView]) -> str:
    more = f" (+{len(views) - 1})" if len(views) > 1 else ""
    return views[0].run.name + more


def _what_differs(comparison: Comparison) -> str:
    """Return the banner; nothing where the page's title says it already."""
    if not comparison.comparable:  # the verdict's reason
        return ""
    is_said = comparison.intended and len(comparison.differs) == 1
    return "" if is_said else (comparison.banner or "").replace(" -> ", " \u2192 ")


def verdict(comparison: Comparison) -> None:
    """Draw the banner, the verdict with its reason and next step, and the interval."""
    if banner := _what_differs(comparison):
        st.info(plain_markdown(banner), icon=":material/difference:")
    title = f"{_TITLES[comparison.verdict]}: {metric_text(comparison.metric, comparison.device)}"
    if comparison.verdict in ACCENTS and comparison.ratio:
        title = f"{_TITLES[comparison.verdict]}: {_change(comparison)}"
    elif comparison.verdict == "not_enough_samples" and comparison.ratio:
        title = f"{_change(comparison).capitalize()}: not decided"
    figures = _figures(comparison)
    lines = [comparison.reason[:1].upper() + comparison.reason[1:], figures]
    if comparison.scaling:
        lines.append(f"{comparison.scaling.words[:1].upper()}{comparison.scaling.words[1:]}")
    if comparison.next_step:
        lines.append(f"Next: {comparison.next_step}.")
    style.verdict(
        title,
        [line for line in lines if line],
        [f"Side {m.side}: {m.message}" for m in comparison.marks],
        ACCENTS.get(comparison.verdict, NEUTRAL),
    )
    if comparison.ratio and comparison.ci95:
        chart(
            interval(comparison.ratio, comparison.ci95, comparison.noise_floor_frac),
            alt=f"Ratio {decimal(comparison.ratio, 3)} with its {comparison.ci95_name} and the "
            "noise floor",
        )


def _change(comparison: Comparison) -> str:
    ratio = comparison.ratio or 1.0
    direction = "higher" if ratio > 1 else "lower"
    interval_text = ""
    if comparison.ci95:
        low, high = (_signed(100 * (v - 1)) for v in comparison.ci95)
        inside = " inside one process" if comparison.ci95_basis == "samples" else ""
        interval_text = f" (95 %{inside}: {low} to {high} %)"
    name = metric_text(comparison.metric, comparison.device)
    return f"{name} {abs(100 * (ratio - 1)):.1f} % {direction}{interval_text}"


def _signed(percent: float) -> str:
    """Return a change in per cent: of a thousand and more, no decimals."""
    if percent >= 1e5:
        return "over +100000"
    return f"{percent:+.{0 if abs(percent) >= 100 else 1}f}".replace("-", "\u2212")


def _figures(comparison: Comparison) -> str:
    sides = [
        f"{label}: {_value(side.median, comparison.unit)} "
        f"({many(side.n_processes, side.group)}, {many(side.n_samples, 'sample')})"
        for label, side in (("A", comparison.a), ("B", comparison.b))
    ]
    ratio = f"; ratio B/A {significant(comparison.ratio)}" if comparison.ratio else ""
    return ", ".join(sides) + ratio


def _value(value: float | None, unit: str) -> str:
    if value is None or unit in ("ms", "B"):
        return shown(value, unit)
    return percent(value) if unit == "" and abs(value) <= 1 else f"{significant(value)} {unit}"


def repeats(ids_a: tuple[str, ...], ids_b: tuple[str, ...]) -> Repeats:
    """Add the repeats that ran in turn, unless they are switched off; say so while some wait."""
    counted = cached.read(find_repeats, ids_a, ids_b)
    if counted.num_waiting:
        st.info(
            f"{many(counted.num_waiting, 'repeat')} of these jobs are queued or "
            "running: they count here once they have ended.",
            icon=":material/schedule:",
        )
        st.page_link(links.QUEUE, label="Watch them in the queue", icon=":material/list:")
    if not counted.num_added:
        return counted
    counts = st.toggle(
        f"Count {many(counted.num_added, 'more run')} of these jobs that ran in turn",
        value=True,
        key="repeats",
        bind="query-params",
        help="Runs of the same two jobs on the same GPU model from a sweep that holds both",
    )
    return counted if counts else replace(counted, a=ids_a, b=ids_b)


def headline(
    comparison: Comparison, views_a: Sequence[RunView], views_b: Sequence[RunView]
) -> None:
    """Draw what changed in the profile: the runs that the waterfall is made from."""
    fall = comparison.waterfall
    named = {v.run.id: v for v in (*views_a, *views_b)}
    a, b = (named[fall.run_a], named[fall.run_b]) if fall else (views_a[0], views_b[0])
    has_latency = any(len(view.samples) for view in (*views_a, *views_b))
    if not has_latency:
        st.caption(
            "No clean pass on either side, so latency is unknown: everything "
            "here was measured under a profiler, which adds overhead."
        )
    if len(views_a) + len(views_b) > 2:
        st.caption(plain_markdown(f"Profile of one run per side: {a.run.name}, {b.run.name}."))
    words = WORDS[comparison.device]
    of = "" if comparison.device == "gpu" else OF_OPERATORS
    every = [
        _latency(comparison, a, b),
        _of_one(a, b, "kernel_time_ns", words.time.capitalize(), of),
        _of_one(a, b, "num_kernels", words.calls.capitalize(), of),
        _idle(a, b),
        _share(a, b, "gemm_frac", "GEMM and GEMV"),
        _memory(a, b),
    ]
    known = [card for card in every if card.value.strip(f"{UNKNOWN} \u2192")]
    cards(known or every)


_OF_ONE = {"kernel_time_ns": kernel_time_of_one, "num_kernels": num_kernels_of_one}


def _of_one(a: RunView, b: RunView, key: str, label: str, of: str) -> Card:
    """Return a figure of a step of both, by the median of the regular ones."""
    left, right = (_OF_ONE[key](view) for view in (a, b))
    known = left and right is not None
    note = f"{significant(right / left)} \u00d7" if known else "not known on both sides"  # type: ignore[operator]
    bases = {basis.word for view in (a, b) if (basis := basis_of(view)) is not None}
    unit = " or ".join(sorted(bases)) or "step"
    return two_figures(key, left, right, note, label=f"{label} / {unit}", about=of)


def _share(a: RunView, b: RunView, key: str, label: str) -> Card:
    left, right = a.summary.get(key), b.summary.get(key)
    card = _two_shares(left, right, key, label)
    if key != "gemm_frac" or left is None or right is None:
        return card
    unknown = " \u2192 ".join(percent(v.summary.get("unclassified_frac")) for v in (a, b))
    return replace(card, note=f"{card.note}; unrecognised {unknown}")


def _two_shares(left: float | None, right: float | None, key: str, label: str) -> Card:
    note = "not known on both sides"
    if left is not None and right is not None:
        note = f"{100 * (right - left):+.1f} percentage points".replace("-", "\u2212")
    return two_figures(key, left, right, note, label=label)


def _idle(a: RunView, b: RunView) -> Card:
    """Return the idle share of both; if their sources differ, the profiled one of both."""
    sources = {v.summary.get("idle_source") for v in (a, b)}
    if len(sources) > 1:
        return _share(a, b, "profiled_idle_frac", "GPU idle, profiled")
    where = "clean pass" if CLEAN in sources else "under the profiler, with its overhead"
    left, right = (v.by_step.facts.get("idle_frac") for v in (a, b))
    if CLEAN not in sources and left is not None and right is not None:
        card = _two_shares(left, right, "idle_frac", "GPU idle per step")
    else:
        card = _share(a, b, "idle_frac", "GPU idle")
    return replace(card, note=f"{card.note}; {where}")


def _latency(comparison: Comparison, a: RunView, b: RunView) -> Card:
    values = [(v.summary.get("latency_ms") or {}).get("median") for v in (a, b)]
    if comparison.metric == "latency":
        values = [comparison.a.median, comparison.b.median]  # Over all runs of a side.
    missing = [side for side, value in zip("AB", values, strict=True) if value is None]
    note = f"no clean pass on side {' and '.join(missing)}" if missing else "clean pass, medians"
    return two_figures("latency_ms.median", values[0], values[1], note, label="Latency")


def _memory(a: RunView, b: RunView) -> Card:
    left, right = (v.summary.get("peak_memory_bytes") for v in (a, b))
    known = left is not None and right is not None
    note = f"{bytes_(right - left)} more" if known and right >= left else "not known on both sides"  # type: ignore[operator]
    if known and right < left:  # type: ignore[operator]
        note = f"{bytes_(left - right)} less"  # type: ignore[operator]
    return two_figures("peak_memory_bytes", left, right, note)
