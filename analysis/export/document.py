"""Comparisons and studies as one plain document of texts and tables, for every text format."""

from dataclasses import dataclass
from functools import partial

from analysis.compare.fields import group_fields
from analysis.compare.labels import WORDS, Words, metric_text
from analysis.compare.records import Comparison, Side, Waterfall
from analysis.export.svg import (
    heatmap_svg,
    loglog_svg,
    processes_svg,
    rows_svg,
    waterfall_svg,
)
from analysis.studies.engine.drawn import (
    chart_colours,
    drawn_rows,
    field_title,
    is_by_row,
    placed_rows,
    value_title,
)
from analysis.studies.engine.fields import sort_key
from analysis.studies.engine.fits import TAIL_POINTS
from analysis.studies.engine.records import Pivot, StudyTable, Table
from core.numbers import decimal

MAX_KERNELS = 200
MAX_SERIES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentTable:
    """One table of texts; `svg` is a chart of it, safe to put into HTML as it is."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    svg: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[DocumentTable, ...]


def comparison_document(c: Comparison) -> Document:
    """Return verdict, sides, differences, waterfall, kernels, memory and scoreboard as tables."""
    words = c.verdict.replace("_", " ")
    named = WORDS[c.device]
    paragraphs = [f"Verdict for {metric_text(c.metric, c.device)}: {words}. {c.reason}"]
    paragraphs += [f"Next: {c.next_step}."] if c.next_step else []
    paragraphs += [c.banner] if c.banner and c.banner != c.reason else []
    paragraphs += [f"Side {m.side}: {m.message}." for m in c.marks]
    tables = [_sides(c), *_pairs(c)]
    tables += _differs(c)
    if c.waterfall is not None:
        tables.append(_waterfall("Where the time went", c.waterfall, named))
    if c.kernel_waterfall is not None and c.kernel_waterfall != c.waterfall:
        tables.append(
            _waterfall(f"{named.time.capitalize()} by category", c.kernel_waterfall, named)
        )
    tables += _kernels(c) + _memory(c) + _scoreboard(c)
    return Document(
        title=f"{c.a.label} -> {c.b.label}", paragraphs=tuple(paragraphs), tables=tuple(tables)
    )


def _differs(c: Comparison) -> list[DocumentTable]:
    """Return what differs; fields that one side does not state are named in one row."""
    if not c.differs:
        return []
    known = [d for d in c.differs if d.effect != "unknown"]
    rows: list[tuple[str, ...]] = [(d.field, d.a or "", d.b or "", d.effect) for d in known]
    unknown = [d for d in c.differs if d.effect == "unknown"]
    if unknown:
        rows.append((", ".join(group_fields(unknown)), "", "", "known on one side only"))
    header = ("field", "A", "B", "means")
    return [DocumentTable(title="Differs", header=header, rows=tuple(rows))]


def _sides(c: Comparison) -> DocumentTable:
    ratio = "" if c.ratio is None else f"{c.ratio:.4f}"
    ci95 = "" if c.ci95 is None else f"{c.ci95[0]:.4f} to {c.ci95[1]:.4f}"
    unit = f" ({c.unit})" if c.unit else ""
    header = (
        "side",
        "name",
        "runs",
        "processes",
        "samples",
        f"median {metric_text(c.metric, c.device)}{unit}",
    )
    rows = [_side_row("A", c.a), _side_row("B", c.b)]
    rows.append(("B / A", f"{c.ci95_name} {ci95}" if ci95 else "", "", "", "", ratio))
    svg = processes_svg(c.a, c.b, c.unit)
    return DocumentTable(title="Sides", header=header, rows=tuple(rows), svg=svg)


def _pairs(c: Comparison) -> list[DocumentTable]:
    if not c.pairs:
        return []
    rows = tuple(
        (
            pair.b.label,
            pair.a.label,
            _number(pair.a.median),
            _number(pair.b.median),
            _number(pair.ratio),
            f"{pair.ci95[0]:.4f} to {pair.ci95[1]:.4f}" if pair.ci95 else "",
            pair.verdict.replace("_", " "),
            pair.what,
        )
        for pair in c.pairs
    )
    unit = f" ({c.unit})" if c.unit else ""
    header = ("B", "against A", f"A{unit}", f"B{unit}", "B / A", "95 % interval", "verdict")
    title = f"Each measurement: {metric_text(c.metric, c.device)}"
    return [DocumentTable(title=title, header=(*header, "differs"), rows=rows)]


def _number(value: float | None) -> str:
    return "" if value is None else decimal(value)


def _side_row(name: str, side: Side) -> tuple[str, ...]:
    median = "" if side.median is None else decimal(side.median, 6)
    counts = (str(side.n_processes), str(side.n_samples))
    return (name, side.label, " ".join(side.run_ids), *counts, median)


def _waterfall(title: str, fall: Waterfall, words: Words) -> DocumentTable:
    unit_of_time = words.time if fall.mode == "kernel_time" else fall.mode
    if fall.mode == "span" and fall.per == "step":
        unit_of_time = "time of a step"
    rows = [("total A", "", "", f"{fall.total_a_ns}")]
    rows += [(b.name, f"{b.a_ns}", f"{b.b_ns}", f"{b.delta_ns:+d}") for b in fall.bars]
    rows.append(("total B", "", "", f"{fall.total_b_ns}"))
    return DocumentTable(
        title=f"{title} ({unit_of_time}, ns per {fall.per})",
        header=("step", "A", "B", "change"),
        rows=tuple(rows),
        svg=waterfall_svg(fall, unit_of_time),
    )


def _kernels(c: Comparison) -> list[DocumentTable]:
    if not c.kernels:
        return []
    words = WORDS[c.device]
    shown, rest = c.kernels[:MAX_KERNELS], c.kernels[MAX_KERNELS:]
    rows = [
        (
            k.a or "-",
            k.b or "-",
            k.match,
            f"{k.confidence:.2f}",
            f"{decimal(k.a_count)} -> {decimal(k.b_count)}",
            f"{k.a_ns}",
            f"{k.b_ns}",
            f"{k.delta_ns:+d}",
        )
        for k in shown
    ]
    if rest:
        sums = [sum(k.a_ns for k in rest), sum(k.b_ns for k in rest)]
        change = f"{sums[1] - sums[0]:+d}"
        rows.append((f"{len(rest)} more", "", "", "", "", f"{sums[0]}", f"{sums[1]}", change))
    header = ("A", "B", "matched by", "confidence", words.calls, "A ns", "B ns", "change ns")
    return [DocumentTable(title=words.works.capitalize(), header=header, rows=tuple(rows))]


def _memory(c: Comparison) -> list[DocumentTable]:
    if not c.memory:
        return []
    rows = tuple(
        (m.site, f"{m.a_bytes}", f"{m.b_bytes}", f"{m.delta_bytes:+d}") for m in c.memory[:50]
    )
    header = ("allocation site", "A bytes", "B bytes", "change")
    return [DocumentTable(title="Memory at the peak", header=header, rows=rows)]


def _scoreboard(c: Comparison) -> list[DocumentTable]:
    if len({row.gpu for row in c.scoreboard}) < 2:
        return []
    rows = tuple(
        (
            r.gpu,
            r.label,
            decimal(r.latency_ms),
            f"{r.relative_latency:.3f}",
            _percent(r.bandwidth_frac),
            _percent(r.compute_frac),
            _percent(r.datasheet_bandwidth_frac),
            _percent(r.datasheet_compute_frac),
            r.error or "",
        )
        for r in c.scoreboard
    )
    header = (
        WORDS[c.device].device,
        "run",
        "latency ms",
        "relative",
        "of measured bandwidth",
        "of measured compute peak",
        "of datasheet bandwidth",
        "of datasheet compute peak",
        "note",
    )
    return [DocumentTable(title=f"Across {WORDS[c.device].device}s", header=header, rows=rows)]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def study_document(t: StudyTable) -> Document:
    """Return each pivot as a table with its chart, then the fitted exponents."""
    tables = [
        _pivot(pivot, _chart(t, table))
        for pivot, table in zip(t.pivots, t.study.tables, strict=True)
        if pivot.rows
    ]
    if t.fits:
        rows = tuple(
            (
                fit.table,
                fit.provenance,
                fit.label,
                fit.of,
                field_title(fit.x),
                f"{fit.exponent:.2f}",
                _interval(fit.ci95) or "two points only",
                str(fit.num_points),
                f"{fit.tail_exponent:.2f}" if fit.tail_exponent is not None else "",
                _interval(fit.tail_ci95),
            )
            for fit in t.fits
        )
        header = (
            *(
                "table",
                "from",
                "group",
                "what grows",
                "with",
                "exponent",
                "95 % interval",
                "points",
            ),
            *(f"exponent of the largest {TAIL_POINTS}", "its 95 % interval"),
        )
        tables.append(DocumentTable(title="Growth exponents", header=header, rows=rows))
    paragraphs = (t.study.about, *t.notes)
    if not tables:
        paragraphs = (*paragraphs, "No run fits this study yet.")
    return Document(title=t.study.title, paragraphs=paragraphs, tables=tuple(tables))


def _interval(ci95: tuple[float, float] | None) -> str:
    return f"{ci95[0]:.2f} to {ci95[1]:.2f}" if ci95 else ""


def _pivot(pivot: Pivot, svg: str) -> DocumentTable:
    rows = tuple(
        (*key, *(cell.text for cell in cells))
        for key, cells in zip(pivot.rows, pivot.cells, strict=True)
    )
    return DocumentTable(
        title=pivot.title, header=(*pivot.row_fields, *pivot.columns), rows=rows, svg=svg
    )


def _chart(t: StudyTable, table: Table) -> str:
    chart = table.chart
    if chart is None or chart.x not in t.frame:
        return ""
    pivot = next(p for p in t.pivots if p.title == table.title)
    rows = [r for r in drawn_rows(t.frame, table, pivot) if r["status"] != "missing"]
    if not is_by_row(chart, table):
        rows = [r for r in rows if r[chart.x] != ""]
    rows = placed_rows(rows, table, pivot)
    points: dict[str, dict[str, float | None]] = {}
    for row in rows:
        value = row["value"] if row["status"] == "ok" else None
        points.setdefault(row["series"], {})[row["label"]] = value
    places = list(dict.fromkeys(row["label"] for row in rows))
    colours = chart_colours(t.frame, rows, table)
    title = f"{table.title}: {value_title(table)}"
    if is_by_row(chart, table):
        names = sorted(points, key=partial(sort_key, chart.colour))
        ordered = {name: points[name] for name in names}
        return rows_svg(ordered, places, title, is_stacked=chart.kind == "stacked", colours=colours)
    shown = dict(list(points.items())[:MAX_SERIES])
    title += f" by {field_title(chart.x)}"
    if chart.kind == "heatmap":
        return heatmap_svg(shown, title)
    if chart.kind == "loglog":
        return loglog_svg(shown, title, colours)
    return rows_svg(shown, places, title, colours=colours)
