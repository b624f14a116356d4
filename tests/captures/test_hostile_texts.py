"""Names and numbers in captures that cost a reader much more than their bytes, or end it."""

import functools
import gzip
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from analysis.bundle import load_paths
from analysis.capture_file import Staging
from analysis.classify.names import short_name
from analysis.readers.ncu.details import read_ncu_source
from analysis.readers.ncu.table import _total
from analysis.readers.nsys.report import _TOOL_VERSION
from analysis.readers.nsys.stats_rows import _base, _unit
from analysis.readers.torch_trace.ranks import _text_mark
from analysis.studies.engine.fields import TILE
from analysis.trace.flops import operator_elements, operator_flops
from analysis.trace.step_evidence import _family_of
from core.errors import CaptureError
from tests.conftest import H100

TRACE = H100 / "kineto" / "train_bf16.json.gz"
DIGITS = "9" * 5000
"""More than Python turns into a number."""


def trace_with(path: Path, **changes: Any) -> Path:
    """Write the small part of a real trace, with some fields of its kernels replaced."""
    document = json.loads(small_part())
    for event in document["traceEvents"][::3]:
        event.update(changes)
    path.write_text(json.dumps(document))
    return path


@functools.cache
def small_part() -> str:
    document = json.loads(gzip.decompress(TRACE.read_bytes()))
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    document["traceEvents"] = sorted(events, key=lambda event: event["ts"])[5000:5600]
    return json.dumps(document)


def outcome(path: Path, folder: Path) -> str:
    """Read a file as an import does; what is neither an answer nor a sentence fails the test."""
    staged = folder / "staged"
    staged.mkdir()
    begin_s = time.process_time()
    try:
        load_paths([path], Staging(folder=staged, keep_private=False, salt=b"s" * 16))
    except CaptureError:
        found = "refused"
    else:
        found = "read"
    assert time.process_time() - begin_s < 8
    return found


LONG = 60_000
ATTENTION = "_scaled_dot_product_flash_attention_backward"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (_family_of, f"step {DIGITS}"),
        (_family_of, "a_ " * LONG),
        (_family_of, "a" * LONG),
        (short_name, "k" + "\t" * LONG + "x"),
        (short_name, "k" + ".kd" * LONG + "x"),
        (short_name, "k" + "[clone " * LONG),
        (short_name, "\n \t" * LONG + "\u2026x"),
        (_text_mark, f"rank{DIGITS}"),
        (_base, "[" * LONG),
        (_unit, "x" + " (" * LONG),
        (_total, "1" + " " * LONG + ")"),
        (TILE.match, f"tile-{DIGITS}x{DIGITS}"),
        (_TOOL_VERSION.search, f"version 2024.{DIGITS}.1"),
    ],
    ids=lambda value: (
        value[:8].encode("unicode_escape").decode() if isinstance(value, str) else value.__name__
    ),
)
def test_what_a_name_is_costs_no_more_than_its_length(
    read: Callable[[str], object], text: str
) -> None:
    begin_s = time.process_time()
    read(text)
    assert time.process_time() - begin_s < 1


def test_a_trace_of_backslashes_that_are_no_escapes_is_looked_at_once(tmp_path: Path) -> None:
    path = trace_with(tmp_path / "t.json", name="PLACE")
    path.write_text(path.read_text().replace("PLACE", "\\x" + "\\\\" * 50_000 + "x", 1))

    assert outcome(path, tmp_path) in ("read", "refused")


@pytest.mark.parametrize(
    "changes",
    [
        {"tid": 2**70},
        {"pid": 2**70},
        {"pid": -(2**63) - 1, "tid": -(2**64)},
        {"pid": f"rank{DIGITS}"},
        {"cat": "user_annotation", "name": f"ProfilerStep#{DIGITS}"},
    ],
    ids=lambda changes: str(changes)[:50],
)
def test_numbers_of_any_size_name_processes_threads_and_steps(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert outcome(trace_with(tmp_path / "t.json", **changes), tmp_path) == "read"


def _memory_events() -> list[dict[str, Any]]:
    own = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1}
    odd = {"Total Allocated": 2**63, "Total Reserved": -(2**63), "Device Type": 1, "Device Id": 0}
    return [
        {**own, "ts": 1e9 + n, "args": {**odd, "Addr": n % 3, "Bytes": (-1) ** (n // 2) * 2**62}}
        for n in range(400)
    ]


def _nested_calls() -> list[dict[str, Any]]:
    own = {"ph": "X", "cat": "python_function", "pid": 1, "tid": 1}
    return [
        {**own, "name": f"f{n % 7}", "ts": 1e9 + n, "dur": 20_000 - 2 * n, "args": {"Python id": n}}
        for n in range(10_000)
    ]


@pytest.mark.parametrize("make", [_memory_events, _nested_calls])
def test_sizes_and_depths_that_no_program_has_are_read(
    tmp_path: Path, make: Callable[[], list[dict[str, Any]]]
) -> None:
    document = json.loads(small_part())
    document["traceEvents"] += make()
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))

    assert outcome(path, tmp_path) == "read"


@pytest.mark.parametrize(
    "name",
    ["\t" * 32_000 + "x", "step " + DIGITS, "a " * 16_000, "[clone a] " * 3000, "(" * 32_000],
)
def test_names_of_an_nsys_database_cost_no_more_than_their_length(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "n.sqlite"
    path.write_bytes((H100 / "nsys" / "decode_eager.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE StringIds SET value = value || ? || id", (name,))
        conn.execute("UPDATE NVTX_EVENTS SET text = text || ?", (name,))

    assert outcome(path, tmp_path) in ("read", "refused")


@pytest.mark.parametrize(
    "odd", [{"a": {}}, "x", None, -1, [2**70] * 40, [-1, 4], [1e308, 1e308], [[4, 4]], {"0": 1}]
)
@pytest.mark.parametrize("name", ["mm", "addmm", "convolution_backward", ATTENTION])
def test_shapes_of_any_kind_give_a_number_or_none(name: str, odd: Any) -> None:
    for at in range(4):
        shapes: list[Any] = [[4, 4], [4, 4], [4, 4], [4, 4]]
        shapes[at] = odd
        for count in (operator_flops, operator_elements):
            found = count(f"aten::{name}", shapes)
            assert found is None or 0 <= found < 1e300


@pytest.mark.parametrize("cell", ["inf", "-inf", "nan", "1e400", "-5", DIGITS, "1e300"])
def test_numbers_of_an_ncu_source_page_are_whole_counts_or_absent(
    tmp_path: Path, cell: str
) -> None:
    path = tmp_path / "source.csv"
    rows = [f"{cell},FFMA,0x10,{cell},{cell},{cell}", "2,EXIT,0x20,10,64,3"]
    header = "#,Source,Address,# Samples,Instructions Executed,stall_wait"
    path.write_text("\n".join(['"Kernel Name","k"', header, *rows]) + "\n")

    found = read_ncu_source(path).counter_sources

    assert found is not None
    assert found["instruction"].tolist() == ["EXIT"]
    assert found["share_frac"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("step 12", ("step ", 12)),
        ("Train_Step#7", ("Train_Step#", 7)),
        ("iter[3]", ("iter[", 3)),
        ("layer", None),
        ("12", None),
        ("step 12b", None),
    ],
)
def test_a_numbered_range_has_its_family_and_number(name: str, family: Any) -> None:
    assert _family_of(name) == family


@pytest.mark.parametrize(
    "name", [{}, [], ["aten::convolution"], {"a": 1}, 7, None, True], ids=lambda n: f"{n!r}"
)
def test_a_name_of_any_kind_is_read_or_refused(name: Any, tmp_path: Path) -> None:
    assert outcome(trace_with(tmp_path / "t.json", name=name), tmp_path) in ("read", "refused")


@pytest.mark.parametrize("values", [{}, [{}], "x", [[1], {}, None], [DIGITS] * 9, 5])
def test_values_of_a_convolution_of_any_kind_are_read_or_left_out(
    values: Any, tmp_path: Path
) -> None:
    args = {"Input Dims": [[1, 2], [3], []], "Concrete Inputs": values}
    path = trace_with(tmp_path / "t.json", name="aten::convolution", cat="cpu_op", args=args)

    assert outcome(path, tmp_path) == "read"
