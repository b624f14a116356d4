"""Idle time by cause on traces made by hand, whatever the size of the windows."""

import numpy as np
import pytest

from analysis.trace import gaps, host_time
from analysis.trace.gaps import device_use, gap_table
from analysis.trace.model import OpKind
from tests.analysis.trace.made import launches, seeded_trace, trace

US = 1_000


def used(made):
    return device_use(made, host_time.host_time(made))


def idle(made):
    table = gap_table(used(made))
    return dict(zip(table["cause"], table["total_ns"].tolist(), strict=True))


def test_a_launch_in_the_gap_is_the_cause():
    made = trace(calls=launches((0, 0), (110, 0)), ops=[(10, 100, 0), (150, 200, 1)])
    assert idle(made) == {"launch": 50}


def test_a_kernel_that_was_launched_before_the_gap_waits_for_an_unknown_cause():
    made = trace(calls=launches((0, 0), (5, 0)), ops=[(10, 100, 0), (150, 200, 1)])
    assert idle(made) == {"unknown": 50}


def test_a_waiting_call_before_the_launch_is_synchronisation():
    calls = [("cudaLaunchKernel", 0, 2, 0), ("cudaDeviceSynchronize", 5, 130, 0)]
    calls.append(("cudaLaunchKernel", 140, 142, 0))
    made = trace(calls=calls, ops=[(10, 100, 0), (150, 200, 2)])
    assert idle(made) == {"synchronisation": 30, "launch": 20}


def test_a_copy_in_the_gap_is_a_transfer():
    calls = [*launches((0, 0)), ("cudaMemcpyAsync", 105, 106, 0), *launches((145, 0))]
    made = trace(calls=calls, ops=[(10, 100, 0), (110, 140, 1, OpKind.MEMCPY), (150, 200, 2)])
    assert idle(made) == {"transfer": 30, "launch": 20}


def test_a_thread_without_a_call_for_long_is_the_host():
    made = trace(
        calls=launches((0, 0), (900 * US, 0)), ops=[(10, 100 * US, 0), (950 * US, 990 * US, 1)]
    )
    assert idle(made) == {"host": 800 * US, "launch": 50 * US}


def test_a_launch_that_takes_over_a_millisecond_loads_its_module_and_is_the_host():
    calls = [("cudaLaunchKernel", 0, 2, 0), ("cudaLaunchKernel", 110, 110 + 3000 * US, 0)]
    made = trace(calls=calls, ops=[(10, 100, 0), (3010 * US, 3020 * US, 1)])
    assert idle(made) == {"host": 3010 * US - 100}


def test_without_any_call_the_cause_is_unknown():
    made = trace(ops=[(10, 100, -1), (150, 200, -1)])
    assert idle(made) == {"unknown": 50}


@pytest.mark.parametrize("seed", range(4))
def test_idle_time_is_span_less_busy_and_does_not_depend_on_windows(seed, monkeypatch):
    made = seeded_trace(seed, 300)
    whole, (use,) = idle(made), used(made)
    assert sum(whole.values()) == use.span_ns - use.busy_ns
    covered = np.zeros(int(made.gpu_ops.end_ns.max()), bool)
    for start, end in zip(made.gpu_ops.start_ns, made.gpu_ops.end_ns, strict=True):
        covered[start:end] = True
    assert use.busy_ns == covered.sum()
    monkeypatch.setattr(gaps, "WINDOW_OPS", 7)
    monkeypatch.setattr(host_time, "WINDOW_CALLS", 5)
    assert idle(made) == whole


def test_a_kernel_launched_shortly_before_the_gap_could_not_start_earlier():
    """On an idle GPU a kernel starts 20 after its launch: the third could have at 310."""
    made = trace(
        calls=launches((0, 0), (200, 0), (290, 0), (291, 0)),
        ops=[(10, 100, 0), (220, 300, 1), (315, 400, 2), (430, 440, 3), (450, 460, -1)],
    )
    assert idle(made) == {"launch": 120 + 10, "unknown": 5 + 30 + 10}
