"""`warpboard import PATH...`: files of one run, or a bundle."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from app.cli.command import Command, add_json
from app.cli.output import note, print_json
from app.cli.values import parse_assignments, scalar
from core.config import DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--name", help="name of the run; else made from the files")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what was measured, e.g. workload=decode compile=none",
    )
    parser.add_argument(
        "--keep-private",
        action="store_true",
        help="store environment variables, host, user and paths too",
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.imports import import_paths

    given = {k: scalar(v) for k, v in parse_assignments(options.set).items()}
    result = import_paths(
        data, options.paths, name=options.name, params=given, keep_private=options.keep_private
    )
    if options.json:
        print_json(result.as_dict())
        return 0
    for warning in result.warnings:
        note(f"warning ({warning.code}): {warning.message}")
    if result.removed:
        note(f"removed from the stored files: {', '.join(result.removed)}")
    how = "imported as" if result.is_new else "these files are already here as"
    print(f"{how} {result.run_id} ({result.status})")
    return 0


COMMAND = Command(help="store capture files or a bundle as a run", arguments=arguments, run=run)
