"""Records that are written again alone are those of the run that was read as a whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from analysis import record_job
from analysis.assemble import assemble
from analysis.bundle import load_paths
from analysis.capture_file import Staging
from analysis.transfer import RUN, read_document, write_run
from app.reading import asked_records
from tests.analysis.made_rank_exports import write_export


def test_records_of_ranks_stand_as_in_the_run(tmp_path: Path) -> None:
    exports = [
        write_export(tmp_path / "rank0.sqlite", [(10, 0)]),
        write_export(tmp_path / "rank1.sqlite", [(11, 1)], late_us=[100], shift_ns=7_000_123),
    ]
    run, alone = tmp_path / "run", tmp_path / "alone"
    run.mkdir()
    alone.mkdir()
    write_run(assemble(load_paths(exports, Staging(folder=run))), run)

    asked = asked_records(read_document(run / RUN))
    records = [capture | {"path": str(run / capture["file_name"])} for capture in asked]
    record_job.main({"jobs": [{"paths": [], "records": records}]}, alone)

    assert [capture["shift"]["first_process"] for capture in asked] == [0, 1]
    assert [capture["shift"]["offset_ns"] for capture in asked] == [0, -7_000_123]
    names = [name for capture in asked for name in capture["files"].values()]
    assert len(names) == 4
    for name in names:
        assert parquet.read_table(alone / "0" / name) == parquet.read_table(run / name)


@pytest.fixture
def request_of_one(tmp_path: Path) -> Path:
    """A request for the records of a small export, in a file."""
    export = write_export(tmp_path / "rank0.sqlite", [(10, 0)])
    files = {"spans": "spans.parquet", "host": "host.parquet"}
    capture = {"kind": "nsys_sqlite", "path": str(export), "shift": {}, "files": files}
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"jobs": [{"paths": [], "records": [capture]}]}))
    return path


CALL = """
import json, sys
from pathlib import Path
from analysis import record_job
place = Path(sys.argv[1])
record_job.main(json.loads(place.read_text()), place.parent)
print("pandas" in sys.modules, sorted(p.name for p in place.parent.glob("0/*")))
"""


@pytest.mark.parametrize(("before", "has_pandas"), [("", False), ("import analysis.merge", True)])
def test_records_are_written_without_pandas_unless_a_reader_needs_it(
    request_of_one: Path, before: str, has_pandas: bool
) -> None:
    needing = "import analysis.readers\nwhole = analysis.readers.read_records\n"
    needing += f"def read(*a, **k):\n    {before}\n    return whole(*a, **k)\n"
    code = CALL.replace("place =", needing + "analysis.readers.read_records = read\nplace =")
    command = [sys.executable, "-c", code if before else CALL, str(request_of_one)]

    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert said == f"{has_pandas} ['done', 'host.parquet', 'spans.parquet']\n"
