"""Call stacks of nsys exports: frames of CUDA calls, and samples of the CPU while the GPU waits."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from nsys_files import edited

from analysis.readers.nsys.export import read_nsys_sqlite
from tests.conftest import H100

FRAMES = """
CREATE TABLE {table} (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL,
    unresolved INTEGER, originalIP INTEGER, stackDepth INTEGER NOT NULL,
    PRIMARY KEY (id, stackDepth))"""
SAMPLES = """
CREATE TABLE COMPOSITE_EVENTS (id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT NULL,
    cpu INTEGER, threadState INTEGER, globalTid INTEGER, cpuCycles INTEGER NOT NULL)"""
FIRST_TEXT = 900_000_000


class Stacks:
    """Statements that add stacks to an export; texts get ids of their own."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.rows: list[str] = []

    def add(self, table: str, number: int, outermost_first: list[str | None]) -> None:
        for depth, name in enumerate(reversed(outermost_first)):
            symbol = self.texts.setdefault(name or "0x7f", FIRST_TEXT + len(self.texts))
            unresolved = 1 if name is None else "NULL"
            row = f"({number}, {symbol}, {symbol}, {unresolved}, 0, {depth})"
            self.rows.append(f"INSERT INTO {table} VALUES {row}")

    def statements(self) -> list[str]:
        named = [f"INSERT INTO StringIds VALUES ({i}, '{t}')" for t, i in self.texts.items()]
        return [*named, *self.rows]


def paths(frame: pd.DataFrame, metric: str) -> dict[str, float]:
    """Return the time of each node's own by its path, worked out row by row."""
    rows = frame[frame["metric"] == metric].set_index("node")
    found: dict[str, float] = {}
    for node in rows.index:
        names, at = [], node
        while not pd.isna(at):
            names.append(rows.at[at, "name"])
            at = rows.at[at, "parent"]
        path = ";".join(reversed(names))
        found[path] = found.get(path, 0.0) + float(rows.at[node, "self_ns"])
    return found


def launches(path: Path) -> list[tuple[int, int, int]]:
    """Return start, thread and duration of the kernel of each launch inside iterations."""
    sql = """SELECT r.start, r.globalTid, k.end - k.start FROM CUPTI_ACTIVITY_KIND_RUNTIME r
        JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId ORDER BY r.start"""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        return conn.execute(sql).fetchall()


def test_frames_of_calls_lie_between_the_programs_ranges_and_its_kernels(tmp_path: Path) -> None:
    source = H100 / "nsys" / "decode_eager.sqlite"
    stacks = Stacks()
    stacks.add("CUDA_CALLCHAINS", 1, ["main", "train.py:7 step", "_PyEval_Vector", "at::mm"])
    stacks.add("CUDA_CALLCHAINS", 2, ["main", None, "train.py:9 log"])
    changes = [
        FRAMES.format(table="CUDA_CALLCHAINS"),
        *stacks.statements(),
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = 1",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = 2 WHERE correlationId % 2 = 0",
    ]

    flame = read_nsys_sqlite(edited(source.name, tmp_path, changes)).flame

    assert flame is not None
    found = paths(flame, "gpu")
    assert sum(found.values()) == pytest.approx(
        sum(ns for *_, ns in launches(source)) / 5, rel=1e-3
    )
    step = {p for p in found if "main;train.py:7 step;(Python interpreter);at::mm" in p}
    log = {p for p in found if "main;train.py:9 log" in p}
    assert step and log and len(step | log) > 0.9 * len([p for p in found if found[p]])
    assert all(p.split(";")[0] in {"BENCHMARK", "iteration_*"} for p in step | log)


def test_samples_tell_what_the_host_ran_while_the_gpu_waited(tmp_path: Path) -> None:
    source = H100 / "nsys" / "decode_eager.sqlite"
    times = launches(source)
    first, last, thread = times[0][0], times[-1][0], times[0][1]
    stacks = Stacks()
    stacks.add("SAMPLING_CALLCHAINS", 1, ["main", "load_batch", "[Broken backtraces]"])
    rows = [
        f"INSERT INTO COMPOSITE_EVENTS VALUES ({i + 1}, {at}, 0, 0, {thread}, 1)"
        for i, at in enumerate(range(first, last, 100_000))
    ]
    copies = [
        f"INSERT INTO SAMPLING_CALLCHAINS SELECT {i + 1}, symbol, module, unresolved, originalIP,"
        " stackDepth FROM SAMPLING_CALLCHAINS WHERE id = 1"
        for i in range(1, len(rows))
    ]
    tables = [FRAMES.format(table="SAMPLING_CALLCHAINS"), SAMPLES]
    plain = read_nsys_sqlite(source)

    read = read_nsys_sqlite(
        edited(source.name, tmp_path, [*tables, *stacks.statements(), *rows, *copies])
    )

    assert read.flame is not None and plain.flame is not None
    found, before = paths(read.flame, "idle"), paths(plain.flame, "idle")
    assert sum(found.values()) == pytest.approx(sum(before.values()), rel=1e-6)
    sampled = {p: ns for p, ns in found.items() if "main;load_batch" in p}
    assert sum(sampled.values()) > 0.8 * sum(found.values())
    assert not any("Broken" in p for p in found)
    idle: Any = read.idle_host
    assert idle.groupby("group")["idle_ns"].sum().idxmax() == "data_loader"


@pytest.mark.parametrize(
    "row",
    [
        "INSERT INTO CUDA_CALLCHAINS VALUES (1, 5, 5, NULL, 0, 4000000000000)",
        "INSERT INTO CUDA_CALLCHAINS VALUES (-9223372036854775808, 5, 5, NULL, 0, 0)",
        "INSERT INTO CUDA_CALLCHAINS VALUES (9223372036854775807, 5, 5, NULL, 0, 0)",
        "INSERT INTO CUDA_CALLCHAINS VALUES (1, -7, 5, NULL, 0, 0)",
    ],
)
def test_stacks_that_cannot_be_change_nothing_else(row: str, tmp_path: Path) -> None:
    source = H100 / "nsys" / "decode_eager.sqlite"

    read = read_nsys_sqlite(
        edited(source.name, tmp_path, [FRAMES.format(table="CUDA_CALLCHAINS"), row])
    )

    assert read.kernels is not None
    assert len(read.kernels) == len(read_nsys_sqlite(source).kernels)  # type: ignore[arg-type]


def test_a_call_that_is_written_again_with_its_stack_counts_once() -> None:
    source = H100 / "nsys" / "backtraces_h200.sqlite"
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as conn:
        (num_calls,) = conn.execute(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass <> 67"
        ).fetchone()
        with_stack: dict[int, int] = dict(
            conn.execute(
                """SELECT k.start, min(c.id) FROM CUPTI_ACTIVITY_KIND_KERNEL k
                JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
                JOIN CUDA_CALLCHAINS c ON c.id = r.callchainId
                JOIN StringIds s ON s.id = c.symbol
                WHERE s.value LIKE 'at::%' GROUP BY k.start"""
            )
        )
        total_ns, of_stacks_ns = 0, 0
        for start, end in conn.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL"):
            total_ns += end - start
            of_stacks_ns += (end - start) * (start in with_stack)

    read = read_nsys_sqlite(source)

    assert read.warnings == ()
    assert read.summary["num_api_calls"] == num_calls
    assert read.steps is not None and read.flame is not None
    found = paths(read.flame, "gpu")
    assert sum(found.values()) == pytest.approx(total_ns / 5, rel=0.02)
    under_operators = sum(ns for path, ns in found.items() if ";at::" in f";{path}")
    assert under_operators / sum(found.values()) == pytest.approx(of_stacks_ns / total_ns, abs=0.01)
    assert 0.3 < of_stacks_ns / total_ns < 0.9
