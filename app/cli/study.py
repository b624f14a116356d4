"""`warpboard study NAME`: one study's table; `--list` names them."""

from argparse import ArgumentParser, Namespace
from typing import Any

from app.cli.output import add_json, note, print_json, print_table
from app.job_text import submit_command
from core.config import DataDir
from core.errors import UserError


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a study, see --list")
    parser.add_argument("--list", action="store_true", help="list the studies")
    parser.add_argument("--filter", default="", metavar="QUERY", help="which runs to include")
    parser.add_argument(
        "--published", action="store_true", help="add published figures, marked as such"
    )
    parser.add_argument("--format", choices=("md", "csv", "json", "html"), default="md")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from analysis.studies import list_studies

    if options.list:
        rows = [{"name": s.name, "title": s.title, "about": s.about} for s in list_studies()]
        if options.json or options.format == "json":
            print_json(rows)
        else:
            print_table(rows, ("name", "title", "about"))
        return 0
    if not options.name:
        raise UserError("study: name one, or see `study --list`")
    result = _result(options, data)
    _print(result, "json" if options.json else options.format)
    if result.jobs:
        note(_advice(result, options.filter))
    return 0


def _result(options: Namespace, data: DataDir) -> Any:
    from analysis.studies import run_study
    from db.connection import opened
    from db.fetch import NOT_IN_A_STUDY, run_views
    from db.runs import list_runs

    with opened(data.db_path, is_reader=True) as db:
        frame = list_runs(db, options.filter, limit=5000)
        ended = frame[frame["status"].isin(("done", "oom", "failed"))]
        views = run_views(db, data, ended["id"].to_list(), leave_out=NOT_IN_A_STUDY)
    return run_study(options.name, views, published=options.published)


def _advice(result: Any, query: str) -> str:
    """Return what would fill the study: how many cells are missing, the command of the first."""
    command = submit_command(result.jobs[0])
    is_empty = not any(
        cell.provenance == "measured" for p in result.pivots for row in p.cells for cell in row
    )
    if is_empty:
        which = f"no run of the filter {query!r}" if query else "no run"
        return f"{which} fits this study yet; its first job: {command}"
    num = len(result.jobs)
    jobs = "1 job would" if num == 1 else f"{num} jobs would"
    return f"{jobs} fill missing cells; the first: {command}"


def _print(result: Any, chosen: str) -> None:
    from analysis import export

    make = {
        "md": export.to_markdown,
        "csv": export.to_csv,
        "html": export.to_html,
        "json": export.to_json,
    }[chosen]
    print(make(result).rstrip("\n"))
