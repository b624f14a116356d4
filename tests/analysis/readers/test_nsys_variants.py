"""Exports of other versions, options and machines, made from real ones: equal numbers, or said."""

import pytest

from analysis.readers.nsys.export import load_nsys, read_nsys_sqlite
from analysis.readers.nsys.ranges import pytorch_range
from analysis.trace.model import RangeKind
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


VERSIONED = (KERNELS, "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_MEMCPY")


@pytest.mark.parametrize("name", ["train_bf16.sqlite", "streams_and_copies.sqlite"])
def test_tables_of_a_newer_version_are_read_under_their_new_names(tmp_path, name):
    renamed = [f"ALTER TABLE {table} RENAME TO {table}_V3" for table in VERSIONED]
    tables, whole = read_nsys_sqlite(edited(name, tmp_path, renamed)), read_nsys_sqlite(NSYS / name)
    assert tables.summary == whole.summary
    assert tables.phases.equals(whole.phases) and tables.transfers.equals(whole.transfers)


def test_the_newest_of_several_versions_of_a_table_is_read(tmp_path):
    statements = [
        f"CREATE TABLE {KERNELS}_V2 AS SELECT * FROM {KERNELS} LIMIT 7",
        f"ALTER TABLE {KERNELS} RENAME TO {KERNELS}_V10",
    ]
    path = edited("decode_eager.sqlite", tmp_path, statements)
    assert headlines(path)["num_kernels"] == 380


def test_operations_without_any_recorded_time_are_left_out_and_counted(tmp_path):
    no_time = f'UPDATE {KERNELS} SET start = 0, "end" = 0 WHERE rowid IN (3, 4)'
    path = edited("decode_eager.sqlite", tmp_path, [no_time])
    tables = read_nsys_sqlite(path)
    assert tables.summary["num_kernels"] == 378
    assert tables.summary["span_ns"] <= 12_578_217
    said = [w.message for w in tables.warnings if w.code == "quarantined_rows"]
    assert said[0].startswith(f"{KERNELS}: 2 of 380 rows")


def call_added(start, name_id):
    """Return the statements that add a call of 1 ns to the first thread, beside no GPU work."""
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    return [
        f"CREATE TEMP TABLE one AS SELECT * FROM {table} LIMIT 1",
        f'UPDATE one SET start = {start}, "end" = {start} + 1, correlationId = 9000000 + {start}, '
        f"nameId = {name_id}, returnValue = 0",
        f"INSERT INTO {table} SELECT * FROM one",
        "DROP TABLE one",
    ]


def test_launches_into_a_graph_are_captured_and_not_lost(tmp_path):
    """Two launches lie between the begin and the end of a capture, one lost launch outside."""
    begin, end, launch = 900_001, 900_002, 900_003
    statements = [
        f"INSERT INTO StringIds VALUES ({begin}, 'cudaStreamBeginCapture_v10000')",
        f"INSERT INTO StringIds VALUES ({end}, 'cudaStreamEndCapture_v10000')",
        f"INSERT INTO StringIds VALUES ({launch}, 'cudaLaunchKernel_v7000')",
    ]
    for start, name in ((10, begin), (20, launch), (30, launch), (40, end), (50, launch)):
        statements += call_added(start, name)
    tables = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, statements))
    messages = {w.code: w.message for w in tables.warnings}
    assert messages["launches_captured"].startswith("2 of 383 launch calls")
    assert messages["launches_without_kernel"].startswith("1 of 383 launch calls")
    assert tables.summary["num_launches_without_kernel"] == 1


def test_a_host_function_is_no_launch_without_a_kernel(tmp_path):
    name = "INSERT INTO StringIds VALUES (900001, 'cudaLaunchHostFunc_v10000')"
    path = edited("decode_eager.sqlite", tmp_path, [name, *call_added(10, 900_001)])
    assert read_nsys_sqlite(path).summary["num_launches_without_kernel"] == 0


def test_pytorchs_operators_are_no_phases_and_keep_their_attributes(tmp_path):
    """Attention's ranges become operators of `nsys --pytorch=autograd-shapes-nvtx`."""
    text = "aten::mm, seq = 12, op_id = 3, sizes = [[8, 4], [4, 2]], input_op_ids = [(1,0), (2,0)]"
    path = edited(
        "decode_eager.sqlite",
        tmp_path,
        [
            f"UPDATE NVTX_EVENTS SET text = '{text}' WHERE text = 'attention'",
            "UPDATE NVTX_EVENTS SET text = 'mlp, op_id = 77' WHERE text = 'mlp'",
        ],
    )
    trace = load_nsys(path).trace
    is_operator = trace.host_ranges.kind == RangeKind.OPERATOR
    operators = trace.host_ranges.take(is_operator)
    assert set(trace.text(operators.name)) == {"aten::mm"}
    assert set(trace.text(operators.detail)) == {"[[8, 4], [4, 2]]"}
    assert set(operators.sequence.tolist()) == {12}
    phases = read_nsys_sqlite(path).phases
    last = phases["path"].str.split("/").str[-1]
    assert set(last) == {"BENCHMARK", "forward", "mlp", *(f"iteration_{i}" for i in range(5))}
    assert phases.loc[last == "forward", "num_kernels"].tolist() == [76] * 5


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("aten::empty, op_id = 6", "aten::empty", RangeKind.OPERATOR),
        ("MmBackward0, seq = 5, op_id = 9", "MmBackward0", RangeKind.OPERATOR),
        ("autograd::engine::evaluate_function: MmBackward0, op_id = 9",
         "autograd::engine::evaluate_function: MmBackward0", RangeKind.OPERATOR),
        ("Optimizer.step#AdamW.step, op_id = 4", "Optimizer.step#AdamW.step",
         RangeKind.ANNOTATION),
        ("step, lr = 0.1", "step, lr = 0.1", RangeKind.ANNOTATION),
        ("forward", "forward", RangeKind.ANNOTATION),
    ],
)  # fmt: skip
def test_what_a_range_of_pytorch_is_follows_from_its_name(text, name, kind):
    found = pytorch_range(text)
    assert (found.name, found.kind) == (name, kind)


def test_ranges_of_one_xla_pass_are_one_phase_whatever_their_metadata_say(tmp_path):
    name = "'XlaPass:#name=cse,module=jit_step,program_id=' || rowid || '#'"
    path = edited(
        "decode_eager.sqlite",
        tmp_path,
        [
            f"UPDATE NVTX_EVENTS SET text = {name}, domainId = 7 WHERE text = 'attention'",
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) "
            "SELECT 0, 75, 'TSL', globalTid, 7 FROM NVTX_EVENTS WHERE text = 'mlp' LIMIT 1",
        ],
    )
    phases = read_nsys_sqlite(path).phases
    is_pass = phases["path"].str.endswith("/forward/TSL:XlaPass")
    assert phases.loc[is_pass, "num_ranges"].tolist() == [2] * 5


@pytest.mark.parametrize("device", ["-1", "'x'", str(1 << 40)])
def test_kernels_of_devices_that_cannot_be_are_read(tmp_path, device):
    statement = f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = {device}"

    summary = read_nsys_sqlite(edited("decode_eager.sqlite", tmp_path, [statement])).summary

    assert (summary["num_kernels"], summary["kernel_time_ns"]) == (380, 2_184_310)
