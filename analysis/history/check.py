"""The nightly check of a history, and its report as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from analysis.compare.gate import GateAnswer
from analysis.compare.records import Difference
from analysis.history.changes import SEEN_WITHIN
from analysis.history.line import MIN_RUNS, Change, History, Line
from core.numbers import decimal
from core.plain_text import some_of

DEFAULT_NEW = 7
"""A change stays new for this many runs: a check that missed a night still fails for it."""
MAX_TOLD = 6
BLIND_FRAC = 0.08
"""A line that cannot see so much says what to do."""
_QUIETER = "more processes per run (--repeats) or kernel time show it"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCheck:
    """What the check says of one metric."""

    line: Line
    answer: GateAnswer
    reason: str
    change: Change | None
    "The new changes taken together; None where the level has not moved lately."


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCheck:
    """What the check says of one job: the worst of its metrics."""

    history: History
    lines: tuple[LineCheck, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the answer is what it is, a sentence for each metric."""
        if self.lines:
            return tuple(check.reason for check in self.lines)
        return (
            f"undecided: {runs(self.history.job.num_runs)} finished, and no number that two of "
            f"them have; a change needs {MIN_RUNS}",
        )

    @property
    def answer(self) -> GateAnswer:
        answers = [check.answer for check in self.lines]
        return GateAnswer.worst(answers or [GateAnswer.UNDECIDED])


def check_job(
    history: History, metrics: Sequence[str], *, fail_above_pct: float | None, num_new: int
) -> JobCheck:
    """Say of each metric whether it got worse by more than the limit within the newest runs.

    fail_above_pct None: nothing is a regression. A history that is too short to tell is undecided.
    """
    lines = [line for line in history.lines if line.trend.name in metrics]
    checks = (_check(line, fail_above_pct, num_new) for line in lines)
    return JobCheck(history=history, lines=tuple(checks))


def _check(line: Line, limit_pct: float | None, num_new: int) -> LineCheck:
    change = line.since(num_new)
    name, num = line.trend.label.lower(), len(line.points)
    answer = GateAnswer.PASSED
    if num < MIN_RUNS:
        answer = GateAnswer.UNDECIDED
        reason = f"{name}: undecided, {num} of the {MIN_RUNS} runs that a change needs"
    elif change is None:
        reason = f"{name}: no change in the newest {min(num_new, num)} runs"
    else:
        way = "worse" if change.is_worse else "better"
        reason = f"{name}: {change.percent:+.1f} %, {way}, since {line.points[change.index].at}"
        if limit_pct is not None and change.percent > limit_pct:
            answer = GateAnswer.REGRESSION
            reason += f"; above the limit of {decimal(limit_pct, 6)} %"
    if answer == GateAnswer.PASSED and (seen := seen_text(line)):
        reason += f"; {seen}"
    return LineCheck(line=line, answer=answer, reason=reason, change=change)


def runs(number: int) -> str:
    """Return a number of runs in words."""
    return "1 run" if number == 1 else f"{number} runs"


def amount(line: Line, value: float) -> str:
    """Return a value of a line with its unit."""
    return f"{decimal(value)} {line.trend.unit}".rstrip()


def seen_text(line: Line) -> str:
    """Return which change would be seen, "" where that needs no word or is not known."""
    smallest = line.smallest_seen_frac
    if smallest is None or line.trend.is_exact:
        return ""
    blind = f"; a smaller one stays unseen, {_QUIETER}" if smallest > BLIND_FRAC else ""
    return f"a change of {smallest:.1%} or more would be called within {SEEN_WITHIN} runs{blind}"


def change_text(line: Line, change: Change) -> str:
    """Return a change as one sentence: what moved, by how much, when."""
    first, last = line.points[change.index], line.points[change.index - 1]
    return (
        f"{line.trend.label} {change.percent:+.1f} % "
        f"({'worse' if change.is_worse else 'better'}) from {last.name} to {first.name}, {first.at}"
    )


def compare_words(change: Change) -> str:
    """Return the command that compares both sides of a change."""
    return f"warpboard compare {','.join(change.before)} {','.join(change.after)}"


def to_markdown(
    checks: Sequence[JobCheck],
    differs: Mapping[tuple[str, str, int], Sequence[Difference]],
    *,
    url: str = "",
) -> str:
    """Return the report of a check, fit for a comment of a pull request.

    differs: what changed at a change point, by (first run after it, metric, index). url: address
    of the dashboard, for links to comparisons; without one the command stands there.
    """
    worst = [c for c in checks if c.answer == GateAnswer.REGRESSION]
    unknown = [c for c in checks if c.answer == GateAnswer.UNDECIDED]
    head = "no regression" if not worst else f"{len(worst)} of {len(checks)} jobs got worse"
    if unknown:
        told = f"{len(unknown)} of {len(checks)} jobs undecided"
        head = told if len(unknown) == len(checks) else f"{head}, {told}"
    parts = [f"## Warpboard: {head}\n"]
    for check in checks:
        job = check.history.job
        where = f" on {_plain(job.gpu_model)}" if job.gpu_model else ""
        parts.append(f"### {_plain(job.name)}{where}: {check.answer}\n")
        if not check.lines:
            parts += [f"{reason[0].upper()}{reason[1:]}.\n" for reason in check.reasons]
            continue
        rows = ["| metric | now | change | answer |", "| --- | ---: | ---: | --- |"]
        rows += [_row(line_check) for line_check in check.lines]
        parts.append("\n".join(rows) + "\n")
        for line_check in check.lines:
            parts += _change_lines(line_check, differs, url)
    return "\n".join(parts)


def _row(check: LineCheck) -> str:
    line, change = check.line, check.change
    moved = f"{change.percent:+.1f} %" if change else "none"
    now = amount(line, line.level)
    return f"| {line.trend.label} | {now} | {moved} | {_plain(check.reason)} |"


def _change_lines(
    check: LineCheck, differs: Mapping[tuple[str, str, int], Sequence[Difference]], url: str
) -> list[str]:
    if check.change is None:
        return []
    change = check.change
    differences = differs.get((change.after[0], check.line.trend.name, change.index), ())
    shown = some_of([_plain(d.change) for d in differences], MAX_TOLD)
    query = urlencode({"a": ",".join(change.before), "b": ",".join(change.after)})
    link = (
        f"[comparison]({url.rstrip('/')}/compare?{query})" if url else f"`{compare_words(change)}`"
    )
    recorded = f"differs: {shown}" if differences else "no recorded field differs"
    return [f"- {_plain(change_text(check.line, change))}; {recorded}; {link}\n"]


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is: names come from others."""
    for mark in "\\`*_{}[]<#|~":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
