"""`warpboard compare A B`: which is faster, is it real, why. With a limit: a check for CI."""

from argparse import ArgumentParser, Namespace
from typing import Any

from app.cli.output import add_check, exit_code_of, note, one_line
from core.config import DataDir
from core.console import flushed, stop_writing
from core.errors import UserError


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "sides",
        metavar="RUN",
        nargs="+",
        help="A, then B: each a run, or a filter that matches several; several B give one table; "
        "A may be last:N, the N newest good runs of B's job",
    )
    parser.add_argument(
        "--base", metavar="A", help="side A, e.g. --base last:5; all other arguments are B"
    )
    parser.add_argument(
        "--metric",
        default="latency",
        help="latency, kernel_time, busy, span, peak_memory, host:RANGE, kernel:RANGE, ...",
    )
    add_check(parser, "B is really worse than A", "a check that cannot decide")
    parser.add_argument("--format", choices=("text", "md", "json", "html"), default="text")
    parser.add_argument("--json", action="store_true", help="same as --format json")


def run(options: Namespace, data: DataDir) -> int:
    from analysis.compare.engine import compare
    from analysis.compare.gate import gate
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
        answer = gate(result, options.fail_above)
        note(answer.reason)
        code = exit_code_of(answer.answer, options.on_inconclusive)
    try:
        _print(result, "json" if options.json else options.format)
    except BrokenPipeError:  # `| head` has read enough; the answer of the check stays
        return stop_writing(code)
    return flushed(code)


def _print(result: Any, chosen: str) -> None:
    if chosen == "text":
        from app.cli.compare_text import compare_lines

        print("\n".join(map(one_line, compare_lines(result))))
        return
    from analysis import export

    make = {"md": export.to_markdown, "html": export.to_html, "json": export.to_json}[chosen]
    print(make(result).rstrip("\n"))
