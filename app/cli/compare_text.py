"""A comparison as lines for a terminal."""

from analysis.compare import Comparison

_TOP = 12


def compare_lines(result: Comparison) -> list[str]:
    """Return verdict, ratio, both sides, what differs and where the time went."""
    lines = [f"{result.metric}: {result.verdict}. {result.reason}"]
    if result.ratio is not None:
        interval = ""
        if result.ci95:
            interval = f" ({result.ci95_name}: {result.ci95[0]:.4g} to {result.ci95[1]:.4g})"
        lines.append(f"ratio B/A {result.ratio:.4g}{interval}")
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
