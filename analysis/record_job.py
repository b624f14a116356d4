"""Write the records of single operations of captures: a job for `captures.sandbox`'s child.

The request: `jobs`, each with the `records` of one run whose numbers are known already: of each
capture where it lies, what it is, its shift (`analysis.rundata.Shift`), and the names of the
`files` to write. The answer of job N is those files in the folder `N`, or `error.json`.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.jobs import do_each
from analysis.rundata import Shift
from analysis.tables import CaptureKind


class _NoPandas:
    """Has pyarrow do without pandas, which it imports where it can: a third of a child's start."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Refuse pandas; say nothing of other modules."""
        if fullname == "pandas":
            raise ModuleNotFoundError("records of operations are written without pandas")


_REFUSING = _NoPandas()


def main(request: Mapping[str, Any], scratch: Path) -> None:
    """Answer every job of the request, one after the other."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _REFUSING)
    do_each(request["jobs"], scratch, _write_records)


def _write_records(job: Mapping[str, Any], folder: Path) -> None:
    try:
        _write(job["records"], folder)
    except ModuleNotFoundError:
        if _REFUSING not in sys.meta_path:
            raise
        sys.meta_path.remove(_REFUSING)  # a reader of ours does need it
        _write(job["records"], folder)


def _write(captures: Sequence[Mapping[str, Any]], folder: Path) -> None:
    from analysis.readers import read_records
    from analysis.shift import shifted
    from analysis.transfer import write_records

    for capture in captures:
        kind = CaptureKind(capture["kind"])
        tables = read_records(Path(capture["path"]), kind, scratch=folder)
        tables = shifted(tables, Shift(**capture["shift"]))
        for what, name in capture["files"].items():
            write_records(getattr(tables, what), folder / name)
