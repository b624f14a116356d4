"""Load the CUDA calls of the host: sums by kind of call at once, rows into chunks."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.readers.nsys_chunks import Chunks
from analysis.readers.nsys_columns import MAX_TIME_NS, MISSING, ColumnBatches, Ints
from analysis.readers.nsys_events import (
    Quarantine,
    correlation_ids,
    note_reading,
    sound_batches,
)
from analysis.readers.nsys_groups import Groups
from analysis.readers.nsys_shapes import ShapeCodes
from captures.nsys_database import NsysDatabase

API_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
OK, NOT_READY, OLD_NOT_READY, OTHER_ERROR = 0, 600, 34, 1
"""Results told apart: cudaErrorNotReady is a query's answer, whatever else is not 0 an error."""


@dataclass(slots=True, kw_only=True)
class ApiCalls:
    """CUDA calls of the host.

    Columns of `rows`: start, end [ns], correlation (uint32, 0 for none), kind (index into `kinds`).
    """

    rows: Chunks
    kinds: Ints
    "Distinct (name's id in StringIds, result, globalTid); a result is OK, MISSING or an error."
    sums: Groups
    "Durations by kind."
    last_end_ns: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def thread_of_kind(self) -> Ints:
        """Return the globalTid of each kind."""
        return self.kinds[:, 2]


def load_api_calls(
    database: NsysDatabase, quarantine: Quarantine, scratch: Path | None
) -> ApiCalls:
    """Read the CUDA runtime and driver calls; an absent table gives none."""
    batches = ColumnBatches(
        database=database,
        table=API_TABLE,
        required=("start", "end", "globalTid"),
        optional=("correlationId", "nameId", "returnValue"),
    )
    codes = ShapeCodes(num_fields=3)
    found = ApiCalls(
        rows=Chunks(scratch), kinds=codes.rows(), sums=Groups(), last_end_ns=-MAX_TIME_NS
    )
    for batch in sound_batches(batches):
        if not len(batch["start"]):
            continue
        fields = [batch["nameId"], _result(batch["returnValue"]), batch["globalTid"]]
        kind = codes.encode(fields, len(batch["start"]))
        found.sums.add(kind, batch["end"] - batch["start"])
        found.last_end_ns = max(found.last_end_ns, int(batch["end"].max()))
        found.rows.append(
            {
                "start": batch["start"],
                "end": batch["end"],
                "correlation": correlation_ids(batch["correlationId"]),
                "kind": kind,
            }
        )
    found.kinds = codes.rows()
    note_reading(quarantine, database, batches, len(found))
    return found


def _result(values: Ints) -> Ints:
    """Return the values with every error but "not ready" as OTHER_ERROR."""
    if not values.any():
        return values
    is_plain = np.isin(values, (OK, MISSING, NOT_READY, OLD_NOT_READY))
    return np.where(is_plain, values, OTHER_ERROR)
