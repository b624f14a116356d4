"""`warpboard compare A B`: which is faster, is it real, why. With a limit: a check for CI."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from app.cli.command import Command
from app.cli.output import note, one_line
from core.config import DataDir
from core.console import flushed, stop_writing
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.compare import GateAnswer

UNDECIDED_EXIT = 4
"""Exit code of a check that could not decide, where `--on-inconclusive fail` asks for one."""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "sides",
        metavar="RUN",
        nargs="+",
        help="A, then B: each a run, or a filter that names several; several B are one table; "
        "A may be last:N, the N newest good runs of B's job",
    )
    parser.add_argument(
        "--base", metavar="A", help="side A apart, e.g. --base last:5; all others are B"
    )
    parser.add_argument(
        "--metric",
        default="latency",
        help="latency, kernel_time, busy, span, peak_memory, host:RANGE, kernel:RANGE, ...",
    )
    parser.add_argument(
        "--fail-above",
        type=percentage,
        metavar="PCT",
        help="exit with 1 when B is really worse than A by more than PCT percent",
    )
    parser.add_argument(
        "--on-inconclusive",
        choices=("pass", "fail"),
        default="pass",
        help="with --fail-above: what a check that cannot decide does; fail exits with 4",
    )
    parser.add_argument("--format", choices=("text", "md", "json", "html"), default="text")
    parser.add_argument("--json", action="store_true", help="same as --format json")


def percentage(text: str) -> float:
    """Read a percentage of 0 or more, as the `type` of an argument."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


percentage.__name__ = "percentage of 0 or more"  # argparse names the type by it


def run(options: Namespace, data: DataDir) -> int:
    from analysis.compare import compare, gate
    from db.connection import opened
    from db.fetch import run_view
    from db.history import resolve_base
    from db.runs import resolve_runs

    base, *others = [options.base, *options.sides] if options.base else options.sides
    if not others:
        raise UserError("compare: wants two sides: compare A B, or compare --base last:5 B")
    with opened(data.db_path, is_reader=True) as db:
        b = list(dict.fromkeys(run_id for text in others for run_id in resolve_runs(db, text)))
        a = list(dict.fromkeys(resolve_base(db, base, b)))
        sides = [[run_view(db, data, run_id) for run_id in side] for side in (a, b)]
    result = compare(*sides, metric=options.metric)
    code = 0
    if options.fail_above is not None:
        found = gate(result, options.fail_above)
        note(found.reason)
        code = exit_code_of(found.answer, options.on_inconclusive)
    try:
        _print(result, "json" if options.json else options.format)
    except BrokenPipeError:  # `| head` has read enough; the answer of the check stays
        return stop_writing(code)
    return flushed(code)


def exit_code_of(answer: "GateAnswer", on_inconclusive: str) -> int:
    """Return the exit code of a check."""
    if answer == "regression":
        return 1
    return UNDECIDED_EXIT if answer == "undecided" and on_inconclusive == "fail" else 0


def _print(result: Any, chosen: str) -> None:
    if chosen == "text":
        from app.cli.compare_text import compare_lines

        print("\n".join(map(one_line, compare_lines(result))))
        return
    from analysis import export

    make = {"md": export.to_markdown, "html": export.to_html, "json": export.to_json}[chosen]
    print(make(result).rstrip("\n"))


COMMAND = Command(help="compare two runs or groups of runs", arguments=arguments, run=run)
