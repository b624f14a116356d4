"""Hosts with ports are private; lines of files, devices, sizes and times are not."""

import time

import pytest

from captures.private import REMOVED, PrivateWords, clean

HOSTS = (
    "gpu-node17.cluster.local:29500",
    "node-3:6379",
    "10.0.0.5:8080",
    "192.168.4.20:22",
    "8.8.4.4:53",
    "db01:5432",
    "[fe80::1]:22",
    "[fe80::1%eth0]:8080",
    "[2001:db8::7]:29500",
    "gpu17:29500",
    "node017:29500",
    "login1:22",
    "dgx-a100-05:45123",
    "dgxh100:8888",
    "redis:6379",
    "my-redis-master:6379",
    "redis.default.svc.cluster.local:6379",
    "ip-10-0-12-7:8000",
    "ip-10-0-12-7.ec2.internal:29500",
    "compute-b-12:41001",
    "trainer.example.com:443",
    "head.hpc.uni-x.de:2222",
    "DB01.Corp:1433",
    "mlflow.internal:5000",
    "prod-server-2:9000",
    "raycluster-head-abc12:10001",
    "node01.hpc.example.edu",
    "ip-10-0-12-7.ec2.internal",
    "gpu-a-3.lan",
    "gpuhost:45123",
    "trainnode:41001",
    "inferenceserver:50051",
)
NOT = (
    "module:123",
    "torch.nn.functional:2211",
    "file.py:88",
    "model.cu:1024",
    "train.py:88:12",
    "aten::mm",
    "at::native::add:80",
    "cuda:0",
    "cuda:10",
    "rank:3",
    "rank-3:6379",
    "rank12:8000",
    "tok/s: 5",
    "tok/s:5000",
    "layer12:4096",
    "layer-12:8000",
    "step:1000",
    "step-3:5000",
    "block:1024",
    "seq:8192",
    "batch:64",
    "grid:1024",
    "gpu0:4096",
    "gpu:80",
    "12:30",
    "12:30:45",
    "2026-11-28T10:22",
    "localhost:29500",
    "127.0.0.1:8501",
    "0.0.0.0:8501",
    "node:4096",
    "node-3:4096",
    "gpt2:50257",
    "llama-3:32000",
    "conv2d.local:88",
    "torchvision.io:1234",
    "threading.local",
    "torch.distributed.internal",
    "triton_poi_fused_0:8000",
    "nvcr.io/nvidia/pytorch-24:24",
    "redis:7",
    "sm_90:132",
    "v1.2.3:22",
    "model-00001-of-00002:443",
    "[rank0]:8080",
    "[1:2]:22",
    "ratio 4:3000",
    "fp8:8000",
    "mlp-1:8000",
    "x:12345",
    "httpserver:88",
    "graphnode:1234",
    "treenode:9999",
    "dataserver:32768",
    "localhost:45123",
    "trainer:45123",
    "vocab:50257",
    "hidden:53248",
    "tokenizer:12001",
)
AROUND = ("{}", "connect to {} failed", "(host={})", '{{"addr": "{}"}}', "{}, then", "at {}.")


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_cut_wherever_it_stands(host: str) -> None:
    for around in AROUND:
        assert clean(around.format(host)) == around.format(REMOVED)


@pytest.mark.parametrize("text", NOT)
def test_what_only_has_a_colon_and_a_number_stays(text: str) -> None:
    for around in AROUND:
        assert clean(around.format(text)) == around.format(text)


@pytest.mark.parametrize("how", ["RDZV={}", "MASTER='{}'", "A=1\nSTORE={}\nB=2"])
def test_a_host_that_an_environment_names_is_cut_wherever_else_it_stands(how: str) -> None:
    words = PrivateWords()
    words.learn(how.format("trainer:45123"))
    words.learn("ALLOC_CONF=max_split_size_mb:51200\nX=cuda:0\nY=module:12345:7\nZ=12:30000")

    assert clean("rank 3 lost trainer", words) == f"rank 3 lost {REMOVED}"
    assert len(words) == 1


@pytest.mark.parametrize(
    "piece", ["a-1.", "a:22", "[", "]:22", "-", "1.1.1.1:", "node-1:6379 ", ".com"]
)
def test_long_texts_take_time_in_proportion(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    started = time.process_time()
    clean(text)
    assert time.process_time() - started < 4
