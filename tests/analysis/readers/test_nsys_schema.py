"""Old and trimmed exports, several processes, and values that cannot be."""

import pytest

from analysis.readers.nsys.export import read_nsys_sqlite
from tests.analysis.readers.nsys_files import NSYS, edited

CUPTI = "CUPTI_ACTIVITY_KIND"
KERNELS = f"{CUPTI}_KERNEL"
CALLS = f"{CUPTI}_RUNTIME"


def codes(tables):
    return {w.code: w.message for w in tables.warnings}


def columns_kept(table, *columns):
    """Replace a table by one that has only these columns."""
    wanted = ", ".join(f'"{c}"' for c in columns)
    return [
        f"CREATE TABLE kept AS SELECT {wanted} FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE kept RENAME TO {table}",
    ]


def test_the_oldest_export_gives_the_same_kernels(tmp_path):
    old = columns_kept(
        KERNELS,
        *("start", "end", "deviceId", "streamId", "correlationId", "globalPid"),
        *("demangledName", "shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    )
    gone = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "DIAGNOSTIC_EVENT", "TARGET_INFO_GPU")
    path = edited("decode_eager.sqlite", tmp_path, [*old, *(f"DROP TABLE {t}" for t in gone)])
    tables, new = read_nsys_sqlite(path), read_nsys_sqlite(NSYS / "decode_eager.sqlite")
    assert dict(tables.summary) == dict(new.summary)
    assert tables.phases.equals(new.phases)
    assert tables.kernels["registers"].isna().all()
    assert dict(tables.gpu) == {} and tables.tool_version is None


def test_versions_come_from_the_old_metadata_table_too(tmp_path):
    rename = "ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA"
    path = edited("decode_eager.sqlite", tmp_path, [rename])
    assert read_nsys_sqlite(path).tool_version == "2025.3.2.0"


def test_one_process_without_the_process_column_still_joins(tmp_path):
    kept = ("start", "end", "deviceId", "streamId", "correlationId", "demangledName", "shortName")
    path = edited("decode_eager.sqlite", tmp_path, columns_kept(KERNELS, *kept))
    assert read_nsys_sqlite(path).summary["num_kernels_without_launch"] == 0


def test_negative_times_change_no_sum(tmp_path):
    times = [
        f'UPDATE {t} SET start = start - 10000000000, "end" = "end" - 10000000000'
        for t in (KERNELS, CALLS, "NVTX_EVENTS", f"{CUPTI}_MEMCPY", f"{CUPTI}_MEMSET")
    ]
    tables = read_nsys_sqlite(edited("train_bf16.sqlite", tmp_path, times))
    before = read_nsys_sqlite(NSYS / "train_bf16.sqlite")
    assert tables.summary["span_ns"] == before.summary["span_ns"]
    sums = ["path", "host_ns", "projected_ns", "kernel_ns", "num_kernels"]
    assert tables.phases[sums].equals(before.phases[sums])
    assert tables.phases["first_start_ns"].max() < 0


def second_process(shift_ns, device):
    """Copy every kernel, call and range into a process of its own with the same correlation ids."""
    other = 1 << 24
    statements = []
    for table, who in ((KERNELS, "globalPid"), (CALLS, "globalTid"), ("NVTX_EVENTS", "globalTid")):
        statements += [
            f"CREATE TEMP TABLE twin AS SELECT * FROM {table}",
            f"UPDATE twin SET {who} = {who} + {other}, start = start + {shift_ns}, "
            f'"end" = "end" + {shift_ns}',
        ]
        if table == KERNELS:
            statements.append(f"UPDATE twin SET deviceId = {device}")
        statements += [f"INSERT INTO {table} SELECT * FROM twin", "DROP TABLE twin"]
    return statements


def test_colliding_correlation_ids_of_two_processes_stay_apart(tmp_path):
    path = edited("train_bf16.sqlite", tmp_path, second_process(777, 1))
    tables = read_nsys_sqlite(path)
    assert tables.summary["num_kernels"] == 2 * 3162
    assert tables.summary["kernel_time_ns"] == 2 * 22_215_706
    assert tables.summary["span_ns"] == 2 * 198_083_981
    backward = tables.phases[tables.phases["path"].str.endswith("/backward")]
    assert backward.groupby("process")["num_kernels"].sum().tolist() == [1872, 1872]
    assert "duplicate_correlation_ids" not in codes(tables)


def test_ids_that_a_process_counts_anew_belong_to_the_call_before_the_kernel(tmp_path):
    source = read_nsys_sqlite(NSYS / "decode_eager.sqlite")
    anew = [
        f"UPDATE {table} SET correlationId = 1 + correlationId % 500" for table in (KERNELS, CALLS)
    ]
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, anew))
    forward = [t.phases[t.phases["path"].str.endswith("/forward")] for t in (source, tables)]
    assert forward[1]["num_kernels"].tolist() == forward[0]["num_kernels"].tolist()
    assert "duplicate_correlation_ids" not in codes(tables)
    assert "repeated_kernels" not in codes(tables)


def test_processes_that_each_call_their_gpu_zero_are_told_apart_by_the_map(tmp_path):
    mapped = [
        *second_process(777, 0),
        "INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) "
        "SELECT 1, 0, pid + 1 FROM TARGET_INFO_CUDA_DEVICE",
    ]
    tables = read_nsys_sqlite(edited("train_bf16.sqlite", tmp_path, mapped))
    assert tables.summary["span_ns"] == 2 * 198_083_981
    assert sorted(set(tables.spans["device"].to_pylist())) == [0, 1]


def test_kernels_without_launch_are_counted_with_their_share(tmp_path):
    orphan = f"DELETE FROM {CALLS} WHERE correlationId % 2 = 0"
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [orphan]))
    assert tables.summary["num_kernels"] == 380
    lost = tables.summary["num_kernels_without_launch"]
    assert 0 < lost < 380
    assert codes(tables)["kernels_without_launch"].startswith(f"{lost} of 380 kernels")


def test_a_process_that_launched_without_any_kernel_is_named(tmp_path):
    other = [*second_process(777, 0), f"DELETE FROM {KERNELS} WHERE rowid > 380"]
    message = codes(read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, other)))
    assert "380 launch calls" in message["process_without_kernels"]


def test_api_calls_alone_are_no_gpu_activity_with_counts(tmp_path):
    gone = [f"DELETE FROM {KERNELS}", "DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS"]
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, gone))
    assert "805 CUDA API calls" in codes(tables)["no_gpu_activity"]
    assert "kernel_time_ns" not in tables.summary and "busy_ns" not in tables.summary
    assert tables.phases["kernel_ns"].isna().all()


def test_failed_calls_are_marked_but_not_a_query_that_is_not_ready(tmp_path):
    results = [
        "INSERT INTO StringIds VALUES (900001, 'cudaEventQuery_v3020')",
        f"UPDATE {CALLS} SET returnValue = 600, nameId = 900001 WHERE rowid IN (5, 6)",
        f"UPDATE {CALLS} SET returnValue = 2 WHERE rowid = 7",
    ]
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, results))
    assert tables.api_calls["num_failed"].sum() == 1
    assert codes(tables)["failed_api_calls"].startswith("1 CUDA calls failed")


@pytest.mark.parametrize(
    "damage",
    [
        "start = 'yesterday'",
        '"end" = 1.5',
        '"end" = start - 1',
        '"end" = 9223372036854775807',
        "start = -9223372036854775807",
        "\"end\" = x'00ff'",
    ],
)
def test_rows_that_cannot_be_are_left_out_and_counted(tmp_path, damage):
    path = edited(
        "decode_eager.sqlite", tmp_path, [f"UPDATE {KERNELS} SET {damage} WHERE rowid = 200"]
    )
    tables = read_nsys_sqlite(path)
    assert tables.summary["num_kernels"] == 379
    assert f"{KERNELS}: 1 of 380 rows" in codes(tables)["quarantined_rows"]


def test_absurd_ids_and_sizes_do_not_change_the_sums(tmp_path):
    odd = (
        f"UPDATE {KERNELS} SET gridX = 'a', blockY = 1e300, registersPerThread = 1.5, "
        "deviceId = 1 << 40, demangledName = -5, shortName = 1 << 60 WHERE rowid = 200"
    )
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [odd]))
    assert tables.summary["kernel_time_ns"] == 2_184_310
    assert tables.kernels["name"].str.startswith("unknown kernel").sum() == 1


def test_text_that_is_not_utf8_is_read_with_a_mark(tmp_path):
    odd = "UPDATE StringIds SET value = CAST(x'6e766aff6574' AS TEXT) WHERE value LIKE 'nvjet%TNT'"
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [odd]))
    assert any("\ufffd" in name for name in tables.kernels["name"])
    assert tables.summary["kernel_time_ns"] == 2_184_310


def test_a_table_without_its_times_is_named_not_read_as_nothing(tmp_path):
    path = edited("decode_eager.sqlite", tmp_path, columns_kept(KERNELS, "start", "deviceId"))
    tables = read_nsys_sqlite(path)
    assert codes(tables)["missing_columns"] == f"{KERNELS} has no column end: it is not used"
    assert "num_kernels" not in tables.summary


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'seven' WHERE rowid = 5",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1.5 WHERE rowid = 5",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = x'00ff' WHERE rowid = 5",
        "UPDATE NVTX_EVENTS SET eventType = 'seven' WHERE rowid = 7",
        "UPDATE StringIds SET value = x'00ff' WHERE rowid = 100",
    ],
)
def test_a_value_of_another_type_in_a_column_is_said(tmp_path, damage):
    path = edited("decode_eager.sqlite", tmp_path, [damage])
    assert "odd_values" in codes(read_nsys_sqlite(path))


def test_names_that_the_file_does_not_hold_are_counted(tmp_path):
    damage = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 9999999, demangledName = 9999998"
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [damage]))
    assert "unknown_names" in codes(tables)
    assert tables.summary["num_kernels"] == 380


@pytest.mark.parametrize(
    "damage", ["DELETE FROM ANALYSIS_DETAILS", "UPDATE ANALYSIS_DETAILS SET duration = -5"]
)
def test_a_session_that_is_not_there_is_said(tmp_path, damage):
    tables = read_nsys_sqlite(edited("streams_and_copies.sqlite", tmp_path, [damage]))
    assert "session_unknown" in codes(tables) and "capture_window_ns" not in tables.summary


def test_facts_of_a_gpu_that_cannot_be_are_unknown(tmp_path):
    cells = "name = x'ff00', totalMemory = '80 GB', smCount = -1, clockRate = 0, uuid = x'ff00'"
    cells += ", busLocation = 7"
    path = edited("decode_eager.sqlite", tmp_path, [f"UPDATE TARGET_INFO_GPU SET {cells}"])
    assert set(read_nsys_sqlite(path).gpu) == {
        "memory_bandwidth_bytes_per_s", "l2_bytes", "compute_capability",
    }  # fmt: skip


def test_kernel_rows_that_are_there_twice_are_said(tmp_path):
    again = f"INSERT INTO {KERNELS} SELECT * FROM {KERNELS} LIMIT 5"
    found = codes(read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [again])))
    assert found["repeated_kernels"].startswith("5 kernels")
    assert "repeated_kernels" not in codes(read_nsys_sqlite(NSYS / "decode_cuda_graph_node.sqlite"))


def test_a_newer_schema_is_a_warning(tmp_path):
    bump = "UPDATE META_DATA_EXPORT SET value = '4.0.0' WHERE name = 'EXPORT_SCHEMA_VERSION'"
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [bump]))
    assert "4.0.0" in codes(tables)["unknown_schema"]
    assert tables.summary["num_kernels"] == 380


def test_graph_launches_without_any_record_are_unknown_time_not_zero(tmp_path):
    gone = "DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    alone = read_nsys_sqlite(edited("decode_cuda_graph_whole.sqlite", tmp_path, [gone]))
    assert codes(alone)["graphs_not_recorded"].startswith("5 CUDA graph launches")
    assert "no_gpu_activity" in codes(alone) and "opaque_graph_ns" not in alone.summary


def test_a_column_that_every_export_has_is_missed_aloud(tmp_path):
    gone = f"ALTER TABLE {KERNELS} RENAME COLUMN gridX TO grid_"
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [gone]))
    assert "gridX" in codes(tables)["absent_columns"]
    assert tables.kernels["grid"].isna().all()
