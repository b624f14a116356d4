"""Workloads over two ranks on a CPU: gloo in place of NCCL, the same code otherwise."""

import json
import os
import socket
import subprocess
import time

import pytest

from core.config import ROOT
from core.errors import UserError
from workloads.allreduce import size_label
from workloads.registry import cost, estimate_memory_bytes, parse_params
from workloads.spec import parse_ranks


def run_two_ranks(python: str, *command: str) -> list["subprocess.CompletedProcess[str]"]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    started = [
        subprocess.Popen(
            [python, *command],
            cwd=ROOT,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=240) for process in started]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *output)
        for process, output in zip(started, outputs, strict=True)
    ]


def test_a_spread_model_computes_what_the_whole_one_does(warm_python):
    first, second = run_two_ranks(warm_python, "-m", "tests.workloads.spread_models")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    differences = json.loads(first.stdout.splitlines()[-1])
    assert set(differences) == {"ddp", "fsdp2", "tensor"}
    assert max(differences.values()) < 1e-4


def test_allreduce_reports_nccls_bandwidths_of_every_size(tmp_path, warm_python):
    spec = {"preset": "tiny", "iterations": 3, "warmup": 0}

    first, _ = run_two_ranks(
        *(warm_python, "-m", "workloads", "allreduce"),
        *("--spec", json.dumps(spec), "--out", str(tmp_path)),
    )

    result = json.loads(first.stdout.splitlines()[-1])
    assert result["status"] == "ok", first.stderr
    metrics = {(m["name"], m["phase"]): m["value"] for m in result["metrics"]}
    call_s = metrics["call_latency_us", "16_KiB"] / 1e6
    assert metrics["algorithm_gbyte_per_s", "16_KiB"] == pytest.approx(16384 / call_s / 1e9)
    # Two ranks: 2 (n - 1) / n is 1.
    assert metrics["bus_gbyte_per_s", "16_KiB"] == pytest.approx(16384 / call_s / 1e9)
    assert {phase for _, phase in metrics} >= {"1_KiB", "4_KiB", "16_KiB"}
    assert result["environment"]["collectives"] == "gloo"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gpus": 2}, "parallel"),
        ({"gpus": 2, "parallel": "ddp"}, "mode: forward"),
        ({"gpus": 2, "parallel": "fsdp2", "batch": 3}, "batch: 3"),
        ({"gpus": 2, "parallel": "tensor", "preset": "xl"}, "heads: 25"),
        ({"gpus": 2, "parallel": "fsdp2", "straggler_rank": 2}, "straggler_rank: 2"),
        ({"gpus": 2, "parallel": "fsdp2", "profiled_ranks": "5"}, "profiled_ranks"),
    ],
)
def test_what_ranks_cannot_do_is_refused_with_the_field(values, words):
    with pytest.raises(UserError, match=words):
        parse_params("transformer", values)


def test_work_is_counted_for_one_gpu_and_tokens_for_the_job():
    one = cost("transformer", parse_params("transformer", {"mode": "train_step"}))
    values = {"mode": "train_step", "gpus": 4, "parallel": "ddp"}
    strong = cost("transformer", parse_params("transformer", values))
    weak = cost("transformer", parse_params("transformer", {**values, "scaling": "weak"}))

    assert strong.flops == one.flops / 4 and strong.num_tokens == one.num_tokens
    assert weak.flops == one.flops and weak.num_tokens == 4 * one.num_tokens


def test_sharding_needs_less_memory_than_replicas():
    values = {"mode": "train_step", "gpus": 4, "preset": "large"}
    replicas, shards = (
        estimate_memory_bytes("transformer", parse_params("transformer", {**values, "parallel": p}))
        for p in ("ddp", "fsdp2")
    )

    assert shards < replicas / 2


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("all", (0, 1, 2, 3)), ("2", (2,)), ("1-3", (1, 2, 3)), ("[0, 3]", (0, 3))],
)
def test_chosen_ranks_are_read(text, ranks):
    assert parse_ranks(text, 4) == ranks


@pytest.mark.parametrize(
    "text",
    [
        "0-99999999",
        "0-999999999",
        "3-1",
        "4",
        "9" * 5000,
        "0-" + "9" * 5000,
        "\u0661",
        "0," * 40_000,
    ],
)
def test_ranks_that_there_are_not_are_refused_at_once(text):
    begin_s = time.process_time()
    with pytest.raises(UserError, match="profiled_ranks") as refused:
        parse_ranks(text, 4)
    assert time.process_time() - begin_s < 1
    assert len(str(refused.value)) < 200


def test_sizes_have_names_without_blanks():
    assert [size_label(n) for n in (1 << 10, 3 << 20, 1 << 30, 1000)] == [
        "1_KiB",
        "3_MiB",
        "1_GiB",
        "1000_B",
    ]
