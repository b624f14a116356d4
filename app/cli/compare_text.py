"""A comparison as lines for a terminal."""

from analysis.compare.fields import group_fields
from analysis.compare.labels import fall_text, metric_text
from analysis.compare.records import Comparison, Difference, Pair
from analysis.definitions import COMPARED
from core.numbers import decimal

_TOP = 12


def compare_lines(result: Comparison) -> list[str]:
    """Return verdict, ratio, both sides, what differs and where the time went."""
    if result.pairs:
        return _pair_lines(result)
    lines = [f"{_metric(result)}: {result.verdict}. {result.reason}"]
    if result.ratio is not None:
        interval = ""
        if result.ci95:
            interval = (
                f" ({result.ci95_name}: {decimal(result.ci95[0])} to {decimal(result.ci95[1])})"
            )
        is_told = result.higher_is_better or result.metric not in COMPARED
        better = "higher" if result.higher_is_better else "lower"
        way = f"; {better} is better" if is_told else ""
        lines.append(f"ratio B/A {decimal(result.ratio)}{interval}{way}")
    for name, side in (("A", result.a), ("B", result.b)):
        median = "-" if side.median is None else _amount(side.median, result.unit)
        samples = "1 sample" if side.n_samples == 1 else f"{side.n_samples} samples"
        counts = f"{samples} in {side.n_processes} process{'' if side.n_processes == 1 else 'es'}"
        lines.append(f"{name}  {side.label}: {median}, {counts}")
    if result.banner and result.banner != result.reason:
        lines.append(result.banner)
    if result.differs:
        lines += ["", "differs:", *_difference_lines(result)]
    if result.waterfall is not None:
        fall = result.waterfall
        of = fall_text(fall.mode, fall.per, result.device)
        lines += ["", f"where the time went ({of}), ms:"]
        lines += [f"  {bar.delta_ns / 1e6:+10.4f}  {bar.name}" for bar in fall.bars]
        lines.append(f"  {(fall.total_b_ns - fall.total_a_ns) / 1e6:+10.4f}  in all")
    if result.memory:
        growth = sum(site.delta_bytes for site in result.memory)
        lines += ["", "live allocations at the peak, by site, MB:"]
        lines += [f"  {m.delta_bytes / 1e6:+10.2f}  {m.site}" for m in result.memory[:_TOP]]
        if rest := result.memory[_TOP:]:
            total = sum(site.delta_bytes for site in rest)
            lines.append(f"  {total / 1e6:+10.2f}  {len(rest)} more sites")
        lines.append(f"  {growth / 1e6:+10.2f}  in all")
    if result.scaling:
        lines += ["", result.scaling.words]
    if result.next_step:
        lines += ["", result.next_step]
    return lines


def _metric(result: Comparison) -> str:
    """Return the metric as `--metric` takes it; of a CPU also in the words of its operators."""
    text = metric_text(result.metric, result.device)
    is_plain = result.device == "gpu" or text == result.metric.replace("_", " ")
    return result.metric if is_plain else f"{result.metric} ({text})"


def _difference_lines(result: Comparison) -> list[str]:
    """Return a line per field; many that one side does not know, with one prefix, are one line."""
    lines = [_line(d) for d in result.differs if d.effect != "unknown"]
    unknown = [d for d in result.differs if d.effect == "unknown"]
    for name, fields in group_fields(unknown).items():
        is_many = len(fields) > 1
        lines.append(f"  {name}: known on one side only" if is_many else _line(fields[0]))
    return lines


def _line(d: Difference) -> str:
    a, b = ("unknown" if value is None else value for value in (d.a, d.b))
    return f"  {d.field}: {a} -> {b}  ({d.effect})"


def _amount(value: float, unit: str) -> str:
    return f"{decimal(value / 1e9)} GB" if unit == "B" else f"{decimal(value)} {unit}".rstrip()


def _pair_lines(result: Comparison) -> list[str]:
    """Return a row for each measurement: medians, ratio with interval, verdict, what differs."""
    header = ("B", f"A {result.unit}", f"B {result.unit}", "B/A", "95 % interval", "verdict")
    rows: list[tuple[str, ...]] = [(*header, "differs")]
    rows += [
        (
            pair.b.label,
            *("-" if s.median is None else decimal(s.median) for s in (pair.a, pair.b)),
            "-" if pair.ratio is None else decimal(pair.ratio),
            _interval(pair),
            pair.verdict,
            pair.what or "nothing",
        )
        for pair in result.pairs
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [f"{_metric(result)}: each measurement of B against its partner on side A", ""]
    lines += ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    kept = [p for p in result.pairs if p.verdict != "not_comparable"]
    reasons = dict.fromkeys(p.reason for p in kept)
    if len(reasons) > 1:
        reasons = dict.fromkeys(f"{p.b.label}: {p.reason}" for p in kept)
    lines += ["", *reasons]
    if any(p.ci95_basis == "samples" for p in result.pairs):
        lines.append("* inside one process, without the noise between processes")
    return lines


def _interval(pair: Pair) -> str:
    if pair.ci95 is None:
        return "-"
    mark = "*" if pair.ci95_basis == "samples" else ""
    return f"{decimal(pair.ci95[0])} to {decimal(pair.ci95[1])}{mark}"
