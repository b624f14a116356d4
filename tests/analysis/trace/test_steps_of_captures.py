"""Repetition alone finds the steps that annotated captures mark with ranges."""

import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.readers.nsys.export import load_nsys
from analysis.trace.model import HostRanges, Trace, empty_columns
from analysis.trace.steps import Steps, find_steps, steps_document
from app.demo.load import unpack
from tests.conftest import H100

ANNOTATED = (
    "decode_cuda_graph_node",
    "decode_cuda_graph_whole",
    "decode_eager",
    "decode_max_autotune",
    "decode_reduce_overhead",
    "forward_fp32",
    "train_bf16",
)
LAUNCHED = """
SELECT n.start, (SELECT count(*) FROM {table} k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
    ON r.correlationId = k.correlationId AND (r.globalTid >> 24) = (k.globalPid >> 24)
    WHERE r.start BETWEEN n.start AND n.end)
FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
WHERE coalesce(n.text, s.value) LIKE 'iteration%' ORDER BY n.start
"""


def marked(path: Path) -> list[int]:
    """Return how many kernels (graphs, where those are whole) each marked iteration launched."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as found:
        tables = {row[0] for row in found.execute("SELECT name FROM sqlite_master")}
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        table = kernels if kernels in tables else "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
        return [count for _, count in found.execute(LAUNCHED.format(table=table))]


def bare(path: Path) -> Trace:
    trace = load_nsys(path).trace
    return replace(trace, host_ranges=empty_columns(HostRanges))


def launched(steps: Steps) -> list[int]:
    return (steps.frame["num_kernels"] + steps.frame["num_graph_launches"]).tolist()


def is_found(path: Path) -> bool:
    """Tell whether the steps of the bare capture are those that were marked."""
    truth, steps = marked(path), find_steps(bare(path))
    usual = Counter(launched(steps)).most_common(1)
    same = usual and usual[0][0] == Counter(truth).most_common(1)[0][0]
    return bool(same and 0 <= len(truth) - len(steps.frame) <= 1)


@pytest.mark.parametrize("name", ANNOTATED)
def test_without_its_ranges_a_capture_has_the_same_steps(name: str) -> None:
    assert is_found(H100 / "nsys" / f"{name}.sqlite")


@pytest.mark.parametrize("archive", ["h100", "h200", "h200-more"])
def test_without_their_ranges_the_example_captures_have_the_same_steps(
    archive: str, tmp_path: Path
) -> None:
    paths = sorted(unpack(f"{archive}.tar.xz", tmp_path).glob("*/nsys-0.sqlite"))

    assert len(paths) >= 11
    assert [p.parent.name for p in paths if not is_found(p)] == []


@pytest.mark.parametrize("name", ANNOTATED)
def test_with_its_ranges_each_step_holds_what_was_launched_in_it(name: str) -> None:
    path = H100 / "nsys" / f"{name}.sqlite"

    steps = find_steps(load_nsys(path).trace)

    assert steps_document(steps)["source"] == "ranges"
    assert launched(steps) == marked(path)


def test_streams_that_take_turns_are_one_loop() -> None:
    document = steps_document(find_steps(bare(H100 / "nsys" / "streams_and_copies.sqlite")))

    assert (document["source"], document["count"]) == ("repetition", 3)
