"""Read what NCCL says of its calls in NVTX payloads: the bytes of a message and the communicator.

An export holds them where it was made with `--include-blobs=true`. A payload starts with a header
of 32 bytes (domain, schema, sizes); its fields follow at the offsets that the export's own table of
schemas gives, and are known by their names there.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.readers.nsys.columns import MISSING
from analysis.trace.collective_kinds import kind_of
from analysis.trace.model import Collectives, HostRanges, RangeKind, empty_columns, make_columns
from captures.nsys_database import NsysDatabase

EVENTS, ENTRIES = "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
MAX_PAYLOAD_BYTES = 4096
_HEADER = struct.Struct("<IIIIQQ")
_NUMBERS = {5: struct.Struct("<I"), 18: struct.Struct("<Q"), 22: struct.Struct("<Q")}
"""NVTX's numbers of field types -> how they stand: a rank, an id, a size in bytes."""
_MESSAGE, _COMMUNICATOR, _NUM_RANKS = (
    "Message size [bytes]",
    "NCCL communicator ID",
    "No. of ranks",
)
_WHOLE = ("all_reduce", "broadcast", "reduce", "send_recv")
_SHARES = ("all_gather", "reduce_scatter")
"""Of these a message is one rank's share: input of the one, output of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCall:
    """A call with a message, as its payload says."""

    start_ns: int
    thread: int
    "globalTid"
    num_bytes: int
    communicator: int
    num_ranks: int
    "Of the communicator; MISSING where its creation was not recorded."


def load_nccl_calls(database: NsysDatabase) -> tuple[NcclCall, ...]:
    """Return the calls with a message; () where no payloads were exported."""
    if not database.has(EVENTS, "start", "globalTid", "binaryData"):
        return ()
    if not database.has(ENTRIES, "schemaId", "type", "name", "offset"):
        return ()
    fields = _fields(database)
    payloads = list(_payloads(database, fields)) if fields else []
    sizes = {p[_COMMUNICATOR]: p[_NUM_RANKS] for _, _, p in payloads if {*_OF_GROUP} <= p.keys()}
    return tuple(
        NcclCall(
            start_ns=start,
            thread=thread,
            num_bytes=payload[_MESSAGE],
            communicator=payload[_COMMUNICATOR],
            num_ranks=sizes.get(payload[_COMMUNICATOR], MISSING),
        )
        for start, thread, payload in payloads
        if {_MESSAGE, _COMMUNICATOR} <= payload.keys() and payload[_MESSAGE] < 1 << 62
    )


_OF_GROUP = (_COMMUNICATOR, _NUM_RANKS)
Fields = Mapping[int, Mapping[str, tuple[int, struct.Struct]]]


def _fields(database: NsysDatabase) -> Fields:
    """Return schema -> field -> its place and how it stands."""
    by_schema: dict[int, dict[str, tuple[int, struct.Struct]]] = {}
    sql = f'SELECT DISTINCT schemaId, "type", name, "offset" FROM {ENTRIES} LIMIT 10000'
    for schema, kind, name, offset in database.conn.execute(sql):
        if name in (_MESSAGE, _COMMUNICATOR, _NUM_RANKS) and kind in _NUMBERS:
            place = _HEADER.size + (offset if isinstance(offset, int) and offset > 0 else 0)
            by_schema.setdefault(schema, {})[name] = (place, _NUMBERS[kind])
    return by_schema


def _payloads(database: NsysDatabase, fields: Fields) -> Iterator[tuple[int, int, dict[str, int]]]:
    """Yield start, thread and the fields of each payload that its schema fits."""
    sql = f"SELECT start, globalTid, binaryData FROM {EVENTS} WHERE binaryData IS NOT NULL "
    sql += f"AND length(binaryData) <= {2 * MAX_PAYLOAD_BYTES + 2}"
    for start, thread, value in database.conn.execute(sql):
        raw = _raw(value)
        if len(raw) < _HEADER.size or not isinstance(start, int) or not isinstance(thread, int):
            continue
        known = fields.get(_HEADER.unpack_from(raw)[2], {})
        yield (
            start,
            thread,
            {
                name: number.unpack_from(raw, place)[0]
                for name, (place, number) in known.items()
                if place + number.size <= len(raw)
            },
        )


def _raw(value: object) -> bytes:
    """Return the bytes of a payload, which some exports write as hexadecimal text."""
    if isinstance(value, bytes):
        return value
    try:
        return bytes.fromhex(str(value).removeprefix("0x"))
    except ValueError:
        return b""


def nccl_collectives(
    calls: tuple[NcclCall, ...],
    ranges: HostRanges,
    thread_row: Mapping[int, int],
    names: dict[str, int],
) -> Collectives:
    """Return what the payloads say, each with the host range of its call; adds to `names`."""
    of_nccl = np.flatnonzero(ranges.kind == RangeKind.LIBRARY)
    place = {
        (thread, start): row
        for thread, start, row in zip(
            ranges.thread[of_nccl].tolist(),
            ranges.start_ns[of_nccl].tolist(),
            of_nccl.tolist(),
            strict=True,
        )
    }
    texts = list(names)
    rows = []
    for call in calls:
        row = place.get((thread_row.get(call.thread, MISSING), call.start_ns))
        if row is None:
            continue
        name = int(ranges.name[row])
        kind = kind_of(texts[name])
        size = call.num_bytes * (max(call.num_ranks, 0) if kind in _SHARES else 1)
        if kind not in (*_WHOLE, *_SHARES) or size <= 0 or size >= 1 << 62:
            continue
        group = names.setdefault(f"communicator {call.communicator:x}", len(names))
        rows.append((row, name, size, group, call.num_ranks))
    if not rows:
        return empty_columns(Collectives)
    host_range, name_of, size_of, group_of, num_ranks = zip(*rows, strict=True)
    byte = names.setdefault("byte", len(names))
    return make_columns(
        Collectives,
        len(rows),
        host_range=host_range,
        name=name_of,
        element_type=[byte] * len(rows),
        num_elements_in=size_of,
        num_elements_out=size_of,
        group=group_of,
        group_size=num_ranks,
    )
