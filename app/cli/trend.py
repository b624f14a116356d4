"""`warpboard trend JOB`: a job over time, its change points; with a limit a nightly check."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.output import add_check, add_json, exit_code_of, note, one_line, print_json
from core.config import DataDir
from core.console import whole_number
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.history.check import JobCheck

_EVERY = "all"
_WORDS = ("latency", "fast_latency", "kernel_time", "peak_memory", "launches", _EVERY)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "job", metavar="JOB", help="a run of the job, or a filter that matches runs of several jobs"
    )
    parser.add_argument(
        "--metric",
        default="latency",
        choices=_WORDS,
        help="metric to follow; for a job without latency, the first metric it has",
    )
    add_check(parser, "the job got worse recently", "a history that is too short")
    parser.add_argument(
        "--new",
        type=whole_number(1, 1000),
        default=7,
        metavar="N",
        help="count as recent a change detected within the newest N runs",
    )
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="write a report, e.g. for a pull request"
    )
    parser.add_argument(
        "--url", default="", help="address of the dashboard, for the report's links"
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from analysis.compare.gate import GateAnswer

    checks, differs = _checks(options, data)
    answer = GateAnswer.worst(check.answer for check in checks)
    if options.markdown is not None:
        _write(options, checks, differs)
    if options.fail_above is not None:
        for check in checks:
            for reason in check.reasons:
                note(f"{check.history.job.name}: {reason}")
    if options.json:
        print_json(_document(options, checks, differs, str(answer)))
    else:
        print("\n".join(map(one_line, _lines(checks, differs))))
    return exit_code_of(answer, options.on_inconclusive) if options.fail_above is not None else 0


def _checks(options: Namespace, data: DataDir) -> tuple[list["JobCheck"], Any]:
    from analysis.history.check import check_job
    from analysis.history.line import TREND_NAMES
    from app.history import load_history, what_changed
    from db.connection import opened
    from db.history import jobs_named, why_not_counted

    checks, differs = [], {}
    with opened(data.db_path, is_reader=True) as db:
        if status := why_not_counted(db, options.job):
            note(f"{options.job} is {status}: no part of the history that is judged")
        for job in jobs_named(db, options.job):
            history = load_history(db, data, job)
            wanted = TREND_NAMES if options.metric == _EVERY else (options.metric,)
            if options.metric == "latency" and history.line("latency") is None:
                wanted = tuple(line.trend.name for line in history.lines[:1])
            check = check_job(
                history, wanted, fail_above_pct=options.fail_above, num_new=options.new
            )
            checks.append(check)
            for judged in check.lines:
                changes = [*judged.line.changes, *([judged.change] if judged.change else [])]
                for change in changes:
                    key = (change.after[0], judged.line.trend.name, change.index)
                    differs[key] = what_changed(db, data, change)
    return checks, differs


def _write(options: Namespace, checks: list["JobCheck"], differs: Any) -> None:
    from analysis.history.check import to_markdown

    try:
        options.markdown.write_text(to_markdown(checks, differs, url=options.url))
    except OSError as error:
        raise UserError(f"--markdown {options.markdown}: {error.strerror}") from error


def _document(
    options: Namespace, checks: list["JobCheck"], differs: Any, answer: str
) -> dict[str, Any]:
    from dataclasses import asdict

    from analysis.history.line import as_dict

    documents = []
    for check in checks:
        document = dict(as_dict(check.history))
        wanted = {judged.line.trend.name: judged for judged in check.lines}
        document["metrics"] = [m for m in document["metrics"] if m["name"] in wanted]
        for metric in document["metrics"]:
            judged = wanted[metric["name"]]
            metric |= {"answer": str(judged.answer), "reason": judged.reason}
            metric["change_pct"] = judged.change.percent if judged.change else None
            for change, record in zip(judged.line.changes, metric["changes"], strict=True):
                key = (change.after[0], metric["name"], change.index)
                record["differs"] = [asdict(d) for d in differs[key]]
        documents.append(document | {"answer": str(check.answer)})
    return {
        "schema_version": 1,
        "answer": answer,
        "fail_above_pct": options.fail_above,
        "num_new": options.new,
        "jobs": documents,
    }


def _lines(checks: list["JobCheck"], differs: Any) -> list[str]:
    from analysis.history.check import amount, change_text, compare_words, runs

    lines = []
    for check in checks:
        job = check.history.job
        lines.append(f"{job.name} on {job.gpu_model or 'an unknown device'}, {runs(job.num_runs)}")
        for judged in check.lines:
            line = judged.line
            lines.append(
                f"  {line.trend.label}: {amount(line, line.level)} now,"
                f" runs spread by {line.spread_frac:.1%}; {_changes(len(line.changes))}"
            )
            for change in line.changes:
                differences = differs[change.after[0], line.trend.name, change.index]
                what = ", ".join(d.change for d in differences[:6]) or "nothing that was recorded"
                lines.append(f"    {change_text(line, change)}")
                lines += [f"      differs: {what}", f"      {compare_words(change)}"]
            if not line.changes:
                lines.append(f"    {judged.reason}")
        if not check.lines:
            lines += [f"  {reason}" for reason in check.reasons]
    return lines


def _changes(number: int) -> str:
    return "1 change" if number == 1 else f"{number or 'no'} changes"
