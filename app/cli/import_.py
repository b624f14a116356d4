"""`warpboard import PATH...`: files of one run, or a bundle."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.output import add_json, note, print_json
from core.config import DataDir
from core.console import parse_assignments
from core.errors import AppError, UserError

if TYPE_CHECKING:
    from app.imports import Imported


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="files, or one bundle folder"
    )
    parser.add_argument("--name", help="name of the run; default: from the file names")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="describe what was measured, e.g. workload=decode; may be repeated",
    )
    parser.add_argument(
        "--keep-private",
        action="store_true",
        help="store environment variables, host, user and paths too",
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.imports import import_paths
    from captures.contents import bundle_folders

    given = {k: scalar(v) for k, v in parse_assignments(options.set).items()}
    folders = bundle_folders(options.paths)
    if folders:
        return _run_several(options, data, folders, given)
    result = import_paths(
        data, options.paths, name=options.name, params=given, keep_private=options.keep_private
    )
    if options.keep_private and not result.is_new and result.removed:
        note("--keep-private comes too late: delete the run, then import its files again")
    if options.json:
        print_json(result.as_dict())
    else:
        _print(result)
    return 0


def scalar(text: str) -> Any:
    """Return a number or truth value when the text is one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool) else text


def _run_several(
    options: Namespace, data: DataDir, folders: Sequence[Path], given: Mapping[str, Any]
) -> int:
    """Import each bundle as a run of its own; one that is refused does not stop the others."""
    from app.imports import Given, import_several

    if options.name is not None:
        raise UserError(f"--name {options.name!r}: it names one run, and here are {len(folders)}")
    runs = [
        Given(paths=[folder], params=given, keep_private=options.keep_private) for folder in folders
    ]
    entries: list[dict[str, Any]] = []
    for folder, outcome in zip(folders, import_several(data, runs), strict=True):
        if isinstance(outcome, AppError):
            note(f"warpboard: {folder.name}: {outcome}")
            entries.append({"bundle": folder.name, "error": str(outcome)})
            continue
        entries.append({"bundle": folder.name, **outcome.as_dict()})
        if not options.json:
            _print(outcome)
    if options.json:
        print_json({"runs": entries})
    return 2 if any("error" in entry for entry in entries) else 0


def _print(result: "Imported") -> None:
    from captures.scrub import MAY_REMAIN

    for warning in result.warnings:
        note(f"warning ({warning.code}): {warning.message}")
    gone = [what for what in result.removed if not what.startswith(MAY_REMAIN)]
    if gone:
        note(f"removed from the stored files: {', '.join(gone)}")
    for what in result.removed:
        if what.startswith(MAY_REMAIN):
            note(f"may remain in a stored report: {what.removeprefix(MAY_REMAIN)}")
    how = "imported as" if result.is_new else "these files are already here as"
    print(f"{how} {result.run_id} ({result.status})")
