"""`warpboard show RUN`: everything stored about one run."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from app.cli.output import (
    add_json,
    add_run,
    megabytes,
    milliseconds,
    note,
    one_line,
    percent,
    print_json,
    print_table,
)
from core.config import DataDir
from core.numbers import decimal

if TYPE_CHECKING:
    from analysis.compare.labels import Words

_NAME_CHARS = 70
_TOP = 15


def arguments(parser: ArgumentParser) -> None:
    add_run(parser)
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from analysis.compare.labels import WORDS, device_of
    from app.show import show_document
    from db.connection import opened
    from db.fetch import gpu_facts, run_view
    from db.runs import resolve_run

    with opened(data.db_path, is_reader=True) as db:
        run_id = resolve_run(db, options.id)
        view = run_view(db, data, run_id)
        document = show_document(view, gpu_facts(db, run_id))
    if options.json:
        print_json(document)
    else:
        _print(document, WORDS[device_of([view])])
    return 0


def _print(document: dict[str, Any], words: "Words") -> None:
    from analysis.per_step import told_loops

    run, summary = document["run"], document["summary"]
    print(one_line(f"{run['id']}  {run['name']}  [{run['status']}]"))
    name = (run["gpu"] or {}).get("name", "-")
    where = f"GPU {name}" if words.device == "GPU" else f"on a {words.device}"
    print(f"workload {run['workload'] or '-'}, {where}")
    if run["error"]:
        print(one_line(f"error: {run['error']}"))
    latency = summary.get("latency_ms")
    if latency:
        low, high = latency.get("ci95", (None, None))
        interval = f" (95 % interval {decimal(low)} to {decimal(high)})" if low is not None else ""
        print(f"latency {decimal(latency['median'])} ms{interval}, {latency['n']} samples")
    print(
        f"{words.works} {summary.get('num_kernels', '-')},"
        f" {words.time} {milliseconds(summary.get('kernel_time_ns'))},"
        f" busy {milliseconds(summary.get('busy_ns'))},"
        f" span {milliseconds(summary.get('span_ns'))},"
        f" idle {_idle(summary)}"
    )
    print(
        f"GEMM {percent(summary.get('gemm_frac'))},"
        f" attention {percent(summary.get('attention_frac'))},"
        f" not recognised {percent(summary.get('unclassified_frac'))},"
        f" peak memory {megabytes(summary.get('peak_memory_bytes'))}"
    )
    if not latency and (line := _profiled_step(document)):
        print(line)
    for line in (*told_loops(document["steps"] or {}), *_own_lines(document)):
        print(one_line(line))
    _print_tables(document, words)
    for warning in document["warnings"]:
        note(f"warning ({warning['code']}): {warning['message']}")


def _profiled_step(document: dict[str, Any]) -> str | None:
    """Return the time of a step where only a profiler saw steps; its own cost is in it."""
    from analysis.latency import why_no_clean

    steps = document["steps"] or {}
    if not steps.get("period_ns"):
        return None
    regular = steps["count"] - steps["num_excluded"]
    why = why_no_clean(w["code"] for w in document["warnings"])
    return (
        f"time of a step under {document['primary_pass']} {milliseconds(steps['period_ns'])},"
        f" median of {regular} of {steps['count']} steps; {why}"
    )


def _own_lines(document: dict[str, Any]) -> list[str]:
    """Return a line for each number of the program itself: parts of a step, what it printed."""
    lines = []
    for metric in document["metrics"]:
        values = metric.get("process_values")
        if metric["pass"] != "clean" or not values:
            continue
        name, value = metric["name"], f"{decimal(metric['value'], 6)} {metric['unit']}".rstrip()
        if name == "phase_latency":
            name, value = metric["phase"], milliseconds(metric["value"])
        elif metric["phase"]:
            name += f":{metric['phase']}"
        count = f", mean of {len(values)} processes" if len(values) > 1 else ""
        lines.append(f"{name} {value} (clean pass{count})")
    return lines


def _idle(summary: dict[str, Any]) -> str:
    """Return the idle share with where it comes from; a profiled one is more than the program's."""
    source, profiled = summary.get("idle_source"), summary.get("profiled_idle_frac")
    if source is None:
        return percent(None)
    more = f" (clean pass; profiled {percent(profiled)})" if source == "clean" else " (profiled)"
    return percent(summary["idle_frac"]) + more


def _print_tables(document: dict[str, Any], words: "Words") -> None:
    if document["kernels"]:
        from analysis.classify import distinct_labels

        shown = document["kernels"][:_TOP]
        labels = distinct_labels([k["name"] for k in shown], _NAME_CHARS)
        rows = [_kernel_row(k, labels[k["name"]], words) for k in shown]
        print()
        print_table(rows, (words.work, "category", "origin", "count", "total_ms"))
    if document["phases"]:
        shown = [p for p in document["phases"] if p["path"].count("/") <= 2]
        rows = [_phase_row(p, words) for p in shown]
        of_process = ("process",) if len({p.get("process") for p in shown}) > 1 else ()
        print()
        sum_ms, num = f"{words.works}_ms", f"num_{words.works}"
        print_table(
            rows[:_TOP],
            (*of_process, "phase", "host_ms", "projected_ms", sum_ms, num, "attribution"),
        )


def _kernel_row(kernel: dict[str, Any], label: str, words: "Words") -> dict[str, Any]:
    return {
        words.work: label,
        "category": kernel["category"],
        "origin": kernel["origin"],
        "count": kernel["count"],
        "total_ms": kernel["total_ns"] / 1e6,
    }


def _phase_row(phase: dict[str, Any], words: "Words") -> dict[str, Any]:
    row = {"phase": phase["path"], f"num_{words.works}": phase.get("num_kernels")}
    row |= {"attribution": phase["attribution"], "process": phase.get("process")}
    for shown, stored in (
        ("host_ms", "host_ns"),
        ("projected_ms", "projected_ns"),
        (f"{words.works}_ms", "kernel_ns"),
    ):
        row[shown] = phase[stored] / 1e6 if stored in phase else None
    return row
