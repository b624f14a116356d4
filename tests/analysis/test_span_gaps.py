"""The median gap is the same from a table, a file that is not stored yet and a stored one."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.assemble import assemble
from analysis.bundle import load_paths
from analysis.capture_file import Staging
from analysis.idle import median_gap_ns
from analysis.span_file import SpanFile


def test_median_gap_of_each_device_from_whatever_holds_the_spans(tmp_path):
    spans = pa.table(
        {
            "start_ns": [0, 5, 20, 40, 41],
            "end_ns": [10, 8, 30, 50, 60],
            "device": [0, 0, 0, 1, 0],
            "name": ["a"] * 5,
        }
    )
    path = tmp_path / "s.parquet"
    pq.write_table(spans, path)
    file = SpanFile(path, spans.num_rows, tuple(spans.column_names))
    # device 0: 10 before the third, 11 before the last; the second lies inside the first
    assert [median_gap_ns([source]) for source in (spans, path, file)] == [10.5] * 3
    assert median_gap_ns([spans, spans.slice(0, 3)]) == 10
    assert median_gap_ns([tmp_path / "absent.parquet"]) is None
    assert median_gap_ns([spans.slice(0, 1)]) is None


def test_an_assembled_run_states_the_median_gap_of_its_kernels(tmp_path):
    capture = Path(__file__).parents[1] / "data" / "h100" / "nsys" / "decode_eager.sqlite"
    data = load_paths([capture], Staging(folder=tmp_path))
    found = assemble(data).summary["median_gap_ns"]
    assert found == median_gap_ns([c.tables.spans for c in data.captures]) > 1000
