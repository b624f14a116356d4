"""Read the tables of an nsys export: all of them, or what the records of operations need."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from analysis.readers.nsys.assemble import ExportTables, assemble
from analysis.readers.nsys.backtraces import NO_BACKTRACES, OF_CALLS, load_backtraces
from analysis.readers.nsys.columns import DroppedRows, num_of_other_types
from analysis.readers.nsys.facts import Facts, device_map, load_facts
from analysis.readers.nsys.names import load_names
from analysis.readers.nsys.nccl import load_nccl_calls
from analysis.readers.nsys.operations import (
    Calls,
    Operations,
    load_allocations,
    load_calls,
    load_operations,
)
from analysis.readers.nsys.ranges import load_ranges
from analysis.trace.model import Allocations, OpKind, Trace, empty_columns
from captures.nsys_database import NsysDatabase, open_nsys


def read_export(database: NsysDatabase) -> ExportTables:
    """Return all that the event model holds, and what was left out of it."""
    notes = DroppedRows()
    facts = load_facts(database)
    with_nodes = _launches_graphs(database)
    with ThreadPoolExecutor(max_workers=1) as beside:
        # The large tables are read two at a time; both readings release the GIL.
        with_stacks = database.num_rows(OF_CALLS) > 0
        reading_calls = beside.submit(load_calls, database, notes, with_stacks=with_stacks)
        reading_memory = beside.submit(load_allocations, database, facts.device_of, notes)
        operations = tuple(
            load_operations(database, kind, notes, with_nodes=with_nodes) for kind in OpKind
        )
        ranges = load_ranges(database, notes)
        nccl_calls = load_nccl_calls(database)
        backtraces = load_backtraces(database, notes)
        calls, allocations = reading_calls.result(), reading_memory.result()
    notes.note_odd("StringIds", num_of_other_types(database, "StringIds", ["value"], "text"))
    notes.note_odd(
        "ANALYSIS_DETAILS", num_of_other_types(database, "ANALYSIS_DETAILS", ["duration"])
    )
    wanted = {*_names_of(calls, operations), *backtraces.symbol.tolist()}
    return ExportTables(
        facts=facts,
        notes=notes,
        operations=operations,
        calls=calls,
        ranges=ranges,
        allocations=allocations,
        backtraces=backtraces,
        nccl_calls=nccl_calls,
        names=load_names(database, wanted),
    )


def load_for_records(path: Path) -> Trace:
    """Return the events of a sound export from which its records are made, and no others.

    One table after the other: of a small export, as most are, threads cost more than they gain.
    """
    notes = DroppedRows()
    with open_nsys(path, is_sound=True) as database:
        with_nodes = _launches_graphs(database)
        with_stacks = database.num_rows(OF_CALLS) > 0
        operations = tuple(
            load_operations(database, kind, notes, with_nodes=with_nodes) for kind in OpKind
        )
        calls = load_calls(database, notes, with_stacks=with_stacks)
        tables = ExportTables(
            facts=Facts(
                tool_version=None, environment={}, devices={}, device_of=device_map(database)
            ),
            notes=notes,
            operations=operations,
            calls=calls,
            ranges=load_ranges(database, notes),
            allocations=empty_columns(Allocations),
            backtraces=NO_BACKTRACES,
            nccl_calls=(),
            names=load_names(database, _names_of(calls, operations)),
        )
    return assemble(path, tables)[0]


def _names_of(calls: Calls, operations: Sequence[Operations]) -> set[int]:
    """Return the ids of the texts by which calls and kernels are called."""
    wanted = set(calls.kinds[:, 0].tolist())
    for row in operations[OpKind.KERNEL].details:
        wanted.update(row[:2])
    return wanted


def _launches_graphs(database: NsysDatabase) -> bool:
    """Say whether any call launches a CUDA graph: only then kernels can be nodes of one."""
    if not database.has("StringIds", "value"):
        return False
    sql = "SELECT 1 FROM StringIds WHERE value LIKE '%GraphLaunch%' LIMIT 1"
    return database.conn.execute(sql).fetchone() is not None
