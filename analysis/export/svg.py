"""Small static charts as SVG text, for files that must open without a network or a script."""

import math
from collections.abc import Iterable, Mapping, Sequence

from analysis.colours import BAD, GOOD, NEUTRAL, RUN_A, RUN_B, series_colour
from analysis.compare.records import Side, Waterfall
from analysis.studies.engine.drawn import MAX_BAR_ROWS, is_wide
from core.numbers import decimal
from core.plain_text import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 336, 70, 40, 96
NS_PER_MS = 1e6
HEAT = "#56b4e9"
Series = Mapping[str, Mapping[str, float | None]]
"""Series name -> x text -> value; None is a cell that ran out of memory."""
Colours = Mapping[str, str]
"""Series name -> colour; a series that is not among them has one by its place."""
_NO_COLOURS: Colours = {}


def waterfall_svg(fall: Waterfall, what: str) -> str:
    """Draw the steps from A's total to B's of `what`, in ms."""
    bars: list[tuple[str, float, float, str]] = [("A", 0.0, fall.total_a_ns / NS_PER_MS, NEUTRAL)]
    level = float(fall.total_a_ns)
    for bar in fall.bars:
        end = level + bar.delta_ns
        colour = GOOD if bar.delta_ns <= 0 else BAD
        bars.append((bar.name, level / NS_PER_MS, end / NS_PER_MS, colour))
        level = end
    bars.append(("B", 0.0, fall.total_b_ns / NS_PER_MS, NEUTRAL))
    high = max(max(start, end) for _, start, end, _ in bars)
    low = min(0.0, *(min(start, end) for _, start, end, _ in bars))
    scale = (HEIGHT - TOP - BOTTOM) / ((high - low) or 1.0)
    step = (WIDTH - LEFT) / len(bars)
    parts = []
    for i, (name, start, end, colour) in enumerate(bars):
        x, y = LEFT + i * step, TOP + (high - max(start, end)) * scale
        height = max(1.0, abs(end - start) * scale)
        value = end if i in (0, len(bars) - 1) else end - start
        sign = "" if i in (0, len(bars) - 1) else "+"
        parts.append(_rect(x + 4, y, step - 8, height, colour, f"{name}: {value:{sign}.4f} ms"))
        parts.append(
            _text(x + step / 2, y - 4, decimal(value, 3, signed=bool(sign)), anchor="middle")
        )
        parts.append(_label(x + step / 2, name))
    return _svg(parts, f"Waterfall from A to B in ms, {what}, per {fall.per}")


def processes_svg(a: Side, b: Side, unit: str) -> str:
    """Draw the median of each process of both sides as dots on one axis."""
    values = [*a.process_medians, *b.process_medians]
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    low, span = low - 0.05 * span, 1.1 * span
    parts = []
    for row, (name, side, colour) in enumerate((("A", a, RUN_A), ("B", b, RUN_B))):
        y = 40 + 40 * row
        parts.append(_text(LEFT - 10, y + 4, name, anchor="end"))
        for value in side.process_medians:
            x = LEFT + (value - low) / span * (WIDTH - LEFT - 40)
            tip = f"<title>{decimal(value, 6)} {escape(unit)}</title>"
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}">{tip}</circle>')
    for tick in range(5):
        value = low + span * tick / 4
        x = LEFT + tick / 4 * (WIDTH - LEFT - 40)
        parts.append(_text(x, 120, f"{decimal(value)} {unit}", anchor="middle"))
    return _svg(parts, "Median of each process", height=130)


def rows_svg(
    series: Series,
    places: Sequence[str],
    title: str,
    *,
    is_stacked: bool = False,
    colours: Colours = _NO_COLOURS,
) -> str:
    """Draw horizontal bars, a row a place: side by side, or stacked; dots on a logarithmic axis."""
    names = [name for name in series if name]
    hidden, rows = places[MAX_BAR_ROWS:], places[:MAX_BAR_ROWS]
    known = [[series[n].get(row) or 0.0 for n in names] for row in rows]
    high = max((sum(v) if is_stacked else max(v) for v in known if v), default=0.0)
    least = min((v for values in known for v in values if v > 0), default=0.0) * 0.7
    is_log = not is_stacked and is_wide(v for values in known for v in values)
    if not rows or high <= 0:
        return ""
    paint = _painted(names, colours)
    left = 400 if max(map(len, rows)) <= 62 else 500
    thick = 16 if is_stacked else 11
    scale = (WIDTH - left - 60) / (math.log(high / least) if is_log else high)
    title += ", logarithmic axis" if is_log else ""
    title += f", the first {len(rows)} of {len(rows) + len(hidden)} rows" if hidden else ""
    parts, y = [], float(TOP)
    for row in rows:
        start_y, x = y, float(left)
        for name in names:
            value = series[name].get(row)
            length = scale * (math.log(value / least) if is_log and value else value or 0.0)
            tip = f"{name}: {decimal(value)}" if value is not None else ""
            if tip and is_log:  # a bar's length from an arbitrary left end would mean nothing
                parts.append(_dot(x + length, y + thick / 2, paint[name], tip))
            elif tip:
                parts.append(_rect(x, y, length, thick, paint[name], tip))
            if value is not None and not is_stacked:
                parts.append(
                    _text(x + length + (8 if is_log else 4), y + 9, _short(value), anchor="start")
                )
            x += length if is_stacked else 0.0
            y += 0 if is_stacked or value is None else thick + 1
        if not any(series[n].get(row) is not None for n in names):
            parts.append(_text(left, y + 10, "OOM", anchor="start"))
        y = max(y, start_y + thick)
        shown = row if len(row) <= 78 else f"{row[:40]}...{row[-35:]}"
        parts.append(_text(left - 8, (start_y + y) / 2 + 4, shown, anchor="end"))
        y += 8
    return _svg(parts, title, height=round(y) + 6, legend=paint)


def loglog_svg(series: Series, title: str, colours: Colours = _NO_COLOURS) -> str:
    """Draw lines on two logarithmic axes: series name -> x text (a number) -> value."""
    points = {
        name: sorted((float(x), y) for x, y in values.items() if _is_positive(x) and y)
        for name, values in series.items()
    }
    flat = [p for line in points.values() for p in line]
    if not flat:
        return ""
    x_low, x_span = _log_range([x for x, _ in flat])
    y_low, y_span = _log_range([y for _, y in flat])
    paint = _painted(points, colours)

    def at_x(x: float) -> float:
        return LEFT + (math.log10(x) - x_low) / x_span * (WIDTH - LEFT - 30)

    def at_y(y: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(y) - y_low) / y_span * (HEIGHT - TOP - BOTTOM)

    parts = []
    for name, line in points.items():
        places = [(at_x(x), at_y(y), f"{decimal(x, 6)}: {decimal(y)}") for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{paint[name]}"/>')
        for x, y, tip in places:
            parts.append(_dot(x, y, paint[name], tip))
    for x in sorted({x for x, _ in flat}):
        parts.append(_text(at_x(x), HEIGHT - BOTTOM + 18, decimal(x, 6), anchor="middle"))
    for y in (10**y_low, 10 ** (y_low + y_span)):
        parts.append(_text(LEFT - 8, at_y(y) + 4, decimal(y, 3), anchor="end"))
    return _svg(parts, title, legend=paint)


def heatmap_svg(series: Series, title: str) -> str:
    """Draw a grid of cells, the darker the larger; a cell that ran out of memory says OOM."""
    names = _x_names(series)
    known = [v for points in series.values() for v in points.values() if v is not None]
    if not names:
        return ""
    high = max(known, default=1.0) or 1.0
    left, width, height = 420, (WIDTH - 420) / len(names), 26
    parts = [
        _text(left + (i + 0.5) * width, 32, name, anchor="middle") for i, name in enumerate(names)
    ]
    for row, (name, points) in enumerate(series.items()):
        y = TOP + row * height
        parts.append(_text(left - 8, y + 17, name if len(name) < 66 else name[:65], anchor="end"))
        for i, x_name in enumerate(names):
            if x_name not in points:
                continue
            value = points[x_name]
            text = "OOM" if value is None else _short(value)
            shade = 0.0 if value is None else 0.1 + 0.6 * value / high
            box = _rect(left + i * width, y, width - 2, height - 2, HEAT, f"{name}: {text}")
            parts.append(box.replace("<rect ", f'<rect fill-opacity="{shade:.2f}" ', 1))
            parts.append(_text(left + (i + 0.5) * width, y + 17, text, anchor="middle"))
    return _svg(parts, title, height=TOP + 6 + height * len(series))


def _x_names(series: Series) -> list[str]:
    """Return the x texts in the order met; numbers by size."""
    names = list(dict.fromkeys(x for points in series.values() for x in points))
    return sorted(names, key=float) if all(map(_is_positive, names)) else names


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else decimal(value, 3)


def _log_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    return low, (high - low) or 1.0


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _painted(names: Iterable[str], colours: Colours) -> dict[str, str]:
    """Return the colour of each series, in the order of the legend."""
    return {n: colours.get(n) or series_colour(i) for i, n in enumerate(names)}


def _dot(x: float, y: float, colour: str, tip: str) -> str:
    mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">'
    return f"{mark}<title>{escape(tip)}</title></circle>"


def _rect(x: float, y: float, width: float, height: float, colour: str, tip: str) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width):.1f}" height="{height:.1f}"'
    return f'<rect {box} fill="{colour}"><title>{escape(tip)}</title></rect>'


def _text(x: float, y: float, text: str, *, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _label(x: float, text: str) -> str:
    y = HEIGHT - BOTTOM + 14
    shown = text if len(text) <= 26 else text[:25] + "..."
    turn = f'transform="rotate(-28 {x:.1f} {y})"'
    tip = f"<title>{escape(text)}</title>"
    return f'<text x="{x:.1f}" y="{y}" text-anchor="end" {turn}>{escape(shown)}{tip}</text>'


def _svg(
    parts: Sequence[str], title: str, height: int = HEIGHT, legend: Colours = _NO_COLOURS
) -> str:
    """Return the drawing; names of series stand below it, one per line, each with its colour."""
    keys = [
        _rect(LEFT, height + 18 * i, 12, 12, colour, name)
        + _text(LEFT + 20, height + 18 * i + 10, name, anchor="start")
        for i, (name, colour) in enumerate(legend.items())
    ]
    whole = height + 18 * len(legend)
    heading = _text(8, 11, title, anchor="start")
    return (
        f'<svg viewBox="0 0 {WIDTH} {whole}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{heading}{''.join([*parts, *keys])}</svg>"
    )
