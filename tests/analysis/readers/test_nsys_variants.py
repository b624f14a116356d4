"""Exports of other versions, options and machines, made from real ones: equal numbers, or said."""

import pytest

from analysis.readers.nsys.export import read_nsys_sqlite
from tests.analysis.readers.nsys_files import NSYS, edited, rows

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
HEADLINES = ("num_kernels", "kernel_time_ns", "busy_ns", "span_ns", "opaque_graph_ns")


def headlines(path):
    summary = read_nsys_sqlite(path).summary
    return {name: summary.get(name) for name in HEADLINES}


def codes(path):
    return {w.code for w in read_nsys_sqlite(path).warnings}


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE TARGET_INFO_GPU"],
        ["DROP TABLE META_DATA_EXPORT", "DROP TABLE META_DATA_CAPTURE"],
        ["DROP TABLE ANALYSIS_DETAILS", "DROP TABLE TARGET_INFO_SESSION_START_TIME"],
        [
            "CREATE TABLE CUDA_GRAPH_EVENTS (start INT, globalTid INT, graphNodeId INT, "
            "originalGraphNodeId INT)",
            "INSERT INTO CUDA_GRAPH_EVENTS VALUES (-20180000000, 1, 7, 3)",
        ],
        [
            "CREATE TABLE GPU_METRICS (timestamp INT, typeId INT, metricId INT, value INT)",
            "INSERT INTO GPU_METRICS VALUES (13231012, 1, 1, 55)",
        ],
        [
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid) "
            f"SELECT start, {kind}, 'x', globalTid FROM NVTX_EVENTS WHERE eventType = 59"
            for kind in (33, 34, 39, 75, 76)
        ],
    ],
    ids=["gpu", "metadata", "session", "graph_node_ids", "gpu_metrics", "marks"],
)
def test_tables_that_come_and_go_change_no_number(tmp_path, statements):
    path = edited("decode_eager.sqlite", tmp_path, statements)
    whole = read_nsys_sqlite(NSYS / "decode_eager.sqlite")
    tables = read_nsys_sqlite(path)
    assert headlines(path) == headlines(NSYS / "decode_eager.sqlite")
    assert tables.phases["kernel_ns"].tolist() == whole.phases["kernel_ns"].tolist()
    assert not {"unclosed_ranges", "quarantined_rows"} & codes(path)


def test_without_a_gpu_table_the_device_is_unknown_not_the_first_one(tmp_path):
    path = edited("decode_eager.sqlite", tmp_path, [f"UPDATE {KERNELS} SET deviceId = 5"])
    assert dict(read_nsys_sqlite(path).gpu) == {}


def test_two_devices_add_up_and_idle_stays_a_fraction(tmp_path):
    path = edited(
        "decode_eager.sqlite", tmp_path, [f"UPDATE {KERNELS} SET deviceId = 1 WHERE rowid % 2"]
    )
    summary = read_nsys_sqlite(path).summary
    assert summary["kernel_time_ns"] == 2_184_310
    ((span,),) = rows(
        path,
        'SELECT sum(s) FROM (SELECT max("end") - min(start) AS s '
        f"FROM {KERNELS} GROUP BY deviceId)",
    )
    assert summary["span_ns"] == span
    assert 0 <= summary["idle_frac"] <= 1


def test_kernels_that_overlap_on_one_stream_count_once_in_busy(tmp_path):
    longer = f'UPDATE {KERNELS} SET "end" = "end" + 60000'
    path = edited("decode_eager.sqlite", tmp_path, [longer])
    summary = read_nsys_sqlite(path).summary
    busy, reached = 0, None
    for start, end in rows(path, f'SELECT start, "end" FROM {KERNELS} ORDER BY start'):
        busy += max(0, end - max(start, start if reached is None else reached))
        reached = max(end, end if reached is None else reached)
    assert summary["busy_ns"] == busy < summary["kernel_time_ns"]


def test_copies_without_kernels_are_no_kernel_time(tmp_path):
    path = edited("streams_and_copies.sqlite", tmp_path, [f"DROP TABLE {KERNELS}"])
    tables = read_nsys_sqlite(path)
    assert "kernel_time_ns" not in tables.summary and "busy_ns" not in tables.summary
    assert len(tables.transfers) and "no_kernels" in codes(path)


@pytest.mark.parametrize("version", ["4.0.0", "next", "x.y"])
def test_a_schema_that_is_not_known_is_said_and_read(tmp_path, version):
    path = edited(
        "decode_eager.sqlite",
        tmp_path,
        [f"UPDATE META_DATA_EXPORT SET value = '{version}' WHERE name = 'EXPORT_SCHEMA_VERSION'"],
    )
    assert headlines(path)["kernel_time_ns"] == 2_184_310
    assert "unknown_schema" in codes(path)


def test_a_graph_whose_kernels_are_recorded_too_is_counted_once(tmp_path):
    path = edited(
        "decode_cuda_graph_node.sqlite",
        tmp_path,
        [
            f'CREATE TABLE {GRAPHS} (start INT, "end" INT, deviceId INT, streamId INT, '
            "correlationId INT, globalPid INT, graphId INT)",
            f'INSERT INTO {GRAPHS} SELECT min(start), max("end"), deviceId, streamId, '
            f"correlationId, globalPid, 1 FROM {KERNELS} WHERE graphNodeId IS NOT NULL "
            "GROUP BY correlationId",
        ],
    )
    assert headlines(path) == headlines(NSYS / "decode_cuda_graph_node.sqlite")
    assert not any(read_nsys_sqlite(path).kernels["is_opaque"])


def test_names_come_from_what_is_left_when_the_demangled_one_is_gone(tmp_path):
    path = edited("decode_eager.sqlite", tmp_path, [f"UPDATE {KERNELS} SET demangledName = -7"])
    tables = read_nsys_sqlite(path)
    assert tables.summary["kernel_time_ns"] == 2_184_310
    short = {
        r[0] for r in rows(path, f"SELECT value FROM StringIds JOIN {KERNELS} ON id = shortName")
    }
    assert set(tables.kernels["name"]) == short


def test_what_nsys_misses_in_a_helper_process_is_no_warning_about_the_run(tmp_path):
    say = "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 2, 3, 2, '{}', {})"
    (pid,) = rows(NSYS / "decode_eager.sqlite", f"SELECT DISTINCT globalPid FROM {KERNELS}")[0]
    helper = pid + (1 << 24)
    path = edited(
        "decode_eager.sqlite",
        tmp_path,
        [say.format("No CUDA events collected.", helper), say.format("Some were lost.", pid)],
    )
    texts = [w.message for w in read_nsys_sqlite(path).warnings]
    assert any("Some were lost." in text for text in texts)
    assert not any("No CUDA events collected." in text for text in texts)
