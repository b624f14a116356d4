"""`warpboard bisect GOOD BAD -- COMMAND`: which commit made a program slower or faster."""

import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.output import UNDECIDED_EXIT, add_json, note, one_line, print_json
from core.config import DataDir
from core.console import seconds, whole_number, word
from core.errors import RunFailedError, UserError

if TYPE_CHECKING:
    from app.bisect.measure import Program
    from app.bisect.search import Found

_STEP, _PROCESS, _CHOOSE = "step", "process", "auto"


def arguments(parser: ArgumentParser) -> None:
    parser.usage = "warpboard bisect GOOD BAD [options] -- PROGRAM ARGS..."
    parser.add_argument("good", metavar="GOOD", help="a commit from before the change")
    parser.add_argument("bad", metavar="BAD", help="a later commit, with the change")
    parser.add_argument(
        "--time",
        choices=(_CHOOSE, _STEP, _PROCESS),
        default=_CHOOSE,
        help="what is measured: the steps that `profile` sees, or the whole process; "
        "auto: steps where GOOD has some",
    )
    parser.add_argument(
        "--metric",
        type=word,
        metavar="REGEX",
        help="measure a number that the program prints instead: 'tok/s: ([0-9.]+)'",
    )
    parser.add_argument(
        "--higher-is-better", action="store_true", help="with --metric: a rate, not a time"
    )
    parser.add_argument(
        "--build", type=word, metavar="SHELL", help="run once at each commit before the program"
    )
    parser.add_argument(
        "--repeats",
        type=whole_number(4, 50),
        default=5,
        help="processes to run at each commit before judging it",
    )
    parser.add_argument(
        "--max-repeats",
        type=whole_number(4, 50),
        default=15,
        help="processes after which a commit counts as undecided",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=3600.0, help="seconds for one process; default 1 h"
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.bisect.measure import MeasureError

    if not options.program:
        raise UserError(
            "bisect: no program given; put it after `--`: bisect GOOD BAD -- python run.py"
        )
    if options.higher_is_better and not options.metric:
        raise UserError("--higher-is-better: goes with --metric")
    if options.max_repeats < options.repeats:
        raise UserError(f"--max-repeats: {options.max_repeats} is below --repeats")
    with _stops_as_interrupts():
        try:
            program, result, merged = _search(options)
        except MeasureError as error:
            raise RunFailedError(f"bisect: {error}") from error
    if options.json:
        print_json(_document(program, result, merged))
    else:
        print("\n".join(map(one_line, _lines(result, merged))))
    return 0 if result.outcome == "found" else UNDECIDED_EXIT


@contextmanager
def _stops_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the search as Ctrl-C does, so that nothing is left behind."""

    def stop(number: int, frame: Any) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # once: cleaning up is not interrupted
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _search(options: Namespace) -> tuple["Program", "Found", tuple[str, str] | None]:
    """Return what was measured, what was found, and of a merge the line that it brought in."""
    from app.bisect.commits import (
        Commit,
        checkouts,
        commits_between,
        has_changes,
        merged_line,
        repository_of,
    )
    from app.bisect.measure import BuildError, MeasureError, Program
    from app.bisect.search import Search
    from core.metric_patterns import metric_pattern

    here = Path.cwd().resolve()
    repository = repository_of(here).resolve()
    commits = commits_between(repository, options.good, options.bad)
    program = Program(
        words=tuple(options.program),
        subfolder=here.relative_to(repository),
        pattern=metric_pattern(options.metric) if options.metric else None,
        steps_only={_STEP: True, _PROCESS: False}.get(options.time),
        build=options.build,
        timeout_s=options.timeout,
    )
    note(f"commits between {commits[0].short} and {commits[-1].short}: {len(commits) - 2}")
    if has_changes(repository):
        note("changes here that are not committed are in none of them")
    with checkouts(repository) as folders:
        built: dict[str, str | None] = {}

        def folder_of(commit: Commit) -> Path:
            folder = folders.folder(commit)
            if commit.sha not in built:
                try:
                    program.build_in(folder, folders.scratch / "build.log")
                    built[commit.sha] = None
                except MeasureError as error:
                    built[commit.sha] = str(error)
            if why := built[commit.sha]:
                raise BuildError(why)
            return folder

        if program.steps_only is None and program.pattern is None:
            program = _chosen(program, folder_of(commits[0]), folders.scratch)
        note(f"measured: {program.what}")
        search = Search(
            commits=commits,
            run=lambda commit: program.measure(folder_of(commit), folders.scratch),
            rounds=options.repeats,
            max_rounds=options.max_repeats,
            higher_is_better=options.higher_is_better,
            tell=note,
        )
        found = search.find()
    is_found = found.outcome == "found"
    return program, found, merged_line(repository, found.candidates[0].sha) if is_found else None


def _chosen(program: "Program", folder: Path, scratch: Path) -> "Program":
    """Measure steps where the program has some, else the time of the process."""
    from app.bisect.measure import MeasureError

    with_steps = replace(program, steps_only=True)
    try:
        with_steps.measure(folder, scratch)
    except MeasureError:
        return replace(program, steps_only=False)
    return with_steps


def _document(
    program: "Program", result: "Found", merged: tuple[str, str] | None
) -> dict[str, Any]:
    only = result.candidates[0] if result.outcome == "found" else None
    return {
        "schema_version": 1,
        "answer": result.outcome,
        "reason": result.reason,
        "commit": asdict(only) if only else None,
        "merged": list(merged) if merged else None,
        "candidates": [asdict(commit) for commit in result.candidates],
        "measured": program.what,
        "verdict": result.ends.verdict,
        "ratio": result.ends.ratio,
        "ci95": list(result.ends.ci95) if result.ends.ci95 else None,
        "tested": [asdict(tested) for tested in result.tested],
    }


def _lines(result: "Found", merged: tuple[str, str] | None) -> list[str]:
    ratio = f" (BAD / GOOD = {result.ends.ratio:.3f})" if result.ends.ratio else ""
    if result.outcome == "found":
        only = result.candidates[0]
        lines = [f"{only.sha} made it {result.ends.verdict}{ratio}", f"  {only.subject}"]
        if merged:
            lines.append(f"  a merge; which of its commits: bisect {' '.join(merged)}")
        return lines
    if result.outcome == "no_difference":
        return [f"no commit changed it{ratio}: {result.reason}"]
    lines = [f"cannot decide{ratio}: {result.reason}"]
    return lines + [f"  {commit.short} {commit.subject}" for commit in result.candidates[:20]]
