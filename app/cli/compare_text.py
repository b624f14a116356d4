"""A comparison as lines for a terminal."""

from collections.abc import Sequence

from analysis.compare import Comparison, Pair

_TOP = 12


def compare_lines(result: Comparison) -> list[str]:
    """Return verdict, ratio, both sides, what differs and where the time went."""
    lines = [f"{result.metric}: {result.verdict}. {result.reason}"]
    if result.ratio is not None:
        interval = ""
        if result.ci95:
            interval = f" ({result.ci95_name}: {result.ci95[0]:.4g} to {result.ci95[1]:.4g})"
        lines.append(f"ratio B/A {result.ratio:.4g}{interval}")
    if result.pairs:
        return [*lines, "", *_pair_lines(result.pairs, result.unit)]
    for name, side in (("A", result.a), ("B", result.b)):
        median = "-" if side.median is None else f"{side.median:.4g} {result.unit}"
        counts = f"{side.n_samples} samples in {side.n_processes} processes"
        lines.append(f"{name}  {side.label}: {median}, {counts}")
    if result.banner:
        lines.append(result.banner)
    if result.differs:
        lines += ["", "differs:"]
        lines += [f"  {d.field}: {d.a} -> {d.b}  ({d.effect})" for d in result.differs]
    if result.waterfall is not None:
        fall = result.waterfall
        lines += ["", f"where the time went ({fall.mode}, per {fall.per}), ms:"]
        lines += [f"  {bar.delta_ns / 1e6:+10.4f}  {bar.name}" for bar in fall.bars[:_TOP]]
        lines.append(f"  {(fall.total_b_ns - fall.total_a_ns) / 1e6:+10.4f}  in all")
    if result.next_step:
        lines += ["", result.next_step]
    return lines


def _pair_lines(pairs: Sequence[Pair], unit: str) -> list[str]:
    """Return a row for each measurement: what differs, medians, ratio with interval, verdict."""
    lines = ["each against its partner on side A (B / A):"]
    for pair in pairs:
        ratio = "-" if pair.ratio is None else f"{pair.ratio:.4g}"
        if pair.ci95:
            inside = ", inside one process" if pair.ci95_basis == "samples" else ""
            ratio += f" ({pair.ci95[0]:.4g} to {pair.ci95[1]:.4g}{inside})"
        a, b = (f"{s.median:.4g}" if s.median is not None else "-" for s in (pair.a, pair.b))
        lines.append(f"  {pair.b.label}: {ratio}  {pair.verdict}")
        lines.append(f"      against {pair.a.label}: {a} -> {b} {unit}; {pair.what or 'same job'}")
        lines.append(f"      {pair.reason}")
    return lines
