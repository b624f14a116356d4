"""What the names of calls and ranges mean."""

import pytest

from core.trace_rules import (
    api_name,
    is_graph_launch,
    is_iteration_path,
    is_launch,
    is_wait,
    iteration_path,
    launches_one_kernel,
    path_part,
)


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernelEx",
        "cudaLaunchCooperativeKernel",
        "cudaGraphLaunch",
        "hipModuleLaunchKernel",
        "hipGraphLaunch",
        "zeCommandListAppendLaunchKernel",
        "urEnqueueKernelLaunch",
    ],
)
def test_calls_that_start_work_are_launches(call):
    assert is_launch(call)


@pytest.mark.parametrize(
    "call", ["cudaLaunchHostFunc", "cuLaunchHostFunc", "cudaMalloc", "cudaFuncSetLaunchAttribute"]
)
def test_calls_that_start_no_kernel_are_no_launches(call):
    assert not is_launch(call)


def test_a_graph_and_a_launch_on_several_devices_start_more_than_one_kernel():
    assert is_graph_launch("cuGraphLaunch")
    assert launches_one_kernel("cuLaunchKernel")
    assert not launches_one_kernel("cuGraphLaunch")
    assert not launches_one_kernel("cudaLaunchCooperativeKernelMultiDevice")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("cudaDeviceSynchronize", True),
        ("cudaMemcpy", True),
        ("cudaMemcpy2DToArray", True),
        ("cuMemcpyDtoH_v2", True),
        ("hipMemcpy", True),
        ("hipMemcpyWithStream", True),
        ("cudaMemcpyAsync", False),
        ("cuMemcpyHtoDAsync_v2", False),
        ("cudaStreamWaitEvent", False),
        ("cudaMemset", False),
    ],
)
def test_calls_that_wait(call, expected):
    assert is_wait(call) is expected


@pytest.mark.parametrize(
    ("recorded", "name"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaMemcpyAsync_ptsz_v7000", "cudaMemcpyAsync"),
        ("cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2"),
    ],
)
def test_an_api_name_loses_its_version_alone(recorded, name):
    assert api_name(recorded) == name


@pytest.mark.parametrize(
    ("path", "iteration"),
    [
        ("BENCHMARK/iteration_12/forward", "BENCHMARK/iteration_12"),
        ("ProfilerStep#3/iteration_0/forward", "ProfilerStep#3"),
        ("iteration_0/step_7", "iteration_0"),
        ("Step 4", "Step 4"),
        ("forward/attention", None),
        ("iterations", None),
    ],
)
def test_the_outermost_numbered_range_is_the_iteration(path, iteration):
    assert iteration_path(path) == iteration


def test_numbered_ranges_inside_an_iteration_are_none_of_their_own():
    assert is_iteration_path("ProfilerStep#3")
    assert not is_iteration_path("ProfilerStep#3/iteration_0")
    assert not is_iteration_path("ProfilerStep#3/forward")


def test_a_slash_of_a_name_is_no_separator():
    assert "/" not in path_part("layers/0")
    assert path_part("forward") == "forward"
