"""NCCL's NVTX payloads give the sizes of collectives to an nsys export that holds them."""

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from analysis.readers import read
from analysis.trace.rank_numbers import RankPart
from analysis.trace.rank_times import join_ranks
from tests.analysis.made_rank_exports import NUM_STEPS, US, write_export

COMMUNICATOR = 0xABCDEF0123456789
WITH_SIZE, WITH_RANKS = 16777220, 16777218
FIELDS = (
    (WITH_SIZE, 0, 18, "NCCL communicator ID", None),
    (WITH_SIZE, 1, 22, "Message size [bytes]", 8),
    (WITH_RANKS, 0, 18, "NCCL communicator ID", None),
    (WITH_RANKS, 1, 5, "No. of ranks", 8),
    (WITH_RANKS, 2, 5, "Rank", 12),
)


def payload(schema: int, body: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body


def with_payloads(
    path: Path, call: str, num_bytes: int, *, num_ranks: int | None = 8, as_text: bool = False
) -> Path:
    """Add NCCL's ranges around each launch of a collective, with their payloads."""
    write_export(path, [(11, 0)])
    thread = (11 << 24) + 11
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, "
            "textId INT, globalTid INT, endGlobalTid INT, domainId INT, binaryData)"
        )
        conn.execute(
            "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INT, schemaId INT, idx INT, "
            "flags INT, type INT, name TEXT, offset INT)"
        )
        conn.executemany(
            "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, ?, ?, 0, ?, ?, ?)", FIELDS
        )

        def event(start: int, end: int | None, kind: int, text: str, raw: bytes | None) -> None:
            data = raw.hex() if as_text and raw is not None else raw
            row = (start, end, kind, text, thread, data)
            conn.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL, ?, NULL, 1, ?)", row)

        event(0, None, 75, "NCCL", None)
        if num_ranks is not None:
            body = struct.pack("<QIIII", COMMUNICATOR, num_ranks, 0, 0, 0)
            event(10, 20, 59, "ncclCommInitRank", payload(WITH_RANKS, body))
        body = struct.pack("<QQ", COMMUNICATOR, num_bytes)
        for step in range(NUM_STEPS):
            launch = (1_000 + step * 2_000 - 10) * US
            event(launch - 100, launch + 6 * US, 59, call, payload(WITH_SIZE, body))
    return path


def only_row(path: Path) -> dict:
    tables = read(path)
    part = RankPart(file_name="x", ranks=tables.ranks, collectives=tables.collectives)
    (row,) = join_ranks([part]).collectives.dropna(axis="columns").to_dict("records")
    return row


@pytest.mark.parametrize("as_text", [False, True])
def test_size_and_bandwidth_of_an_all_reduce(tmp_path: Path, as_text: bool) -> None:
    row = only_row(with_payloads(tmp_path / "a.sqlite", "ncclAllReduce", 4 << 20, as_text=as_text))

    assert (row["kind"], row["num_bytes"], row["group_size"]) == ("all_reduce", 4 << 20, 8)
    assert row["group"] == f"communicator {COMMUNICATOR:x}"
    # Each all-reduce of the export lasts 600 us: 2 x 7 / 8 of the size over that.
    assert row["bus_gbps"] == pytest.approx((4 << 20) / 600_000 * 1.75)


def test_a_message_of_an_all_gather_is_one_ranks_share(tmp_path: Path) -> None:
    row = only_row(with_payloads(tmp_path / "a.sqlite", "ncclAllGather", 1 << 20))

    assert (row["kind"], row["num_bytes"]) == ("all_gather", 8 << 20)


def test_a_share_of_an_unknown_number_of_ranks_has_no_size(tmp_path: Path) -> None:
    row = only_row(with_payloads(tmp_path / "a.sqlite", "ncclAllGather", 1 << 20, num_ranks=None))

    assert "num_bytes" not in row and "bus_gbps" not in row


@pytest.mark.parametrize("damage", ["x'00'", "'not hexadecimal'", "zeroblob(100)", "42"])
def test_damaged_payloads_give_no_size(tmp_path: Path, damage: str) -> None:
    path = with_payloads(tmp_path / "a.sqlite", "ncclAllReduce", 4 << 20)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(f"UPDATE NVTX_EVENTS SET binaryData = {damage}")

    assert "num_bytes" not in only_row(path)
