"""Naming one physical GPU, and the queue of a run that is bound to one."""

from typing import Any

import pytest
from sqlite_utils import Database

from core.errors import UserError
from core.queues import device_queue, job_queue, model_queue
from core.spec import JobSpec
from db.devices import devices, resolve_device
from db.handover import interrupt_stale, waiting_for
from db.queue import claim_run, front_of_queue, move_up, retry
from db.runs import insert_run, insert_sweep, list_rows
from db.status import queue
from db.workers import register_worker, worker_stopped

H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-80GB"


def register(db: Database, worker_id: str, host: str, gpus: list[tuple[str, str]]) -> None:
    """Register a host with these (model, uuid), in the order of their indices."""
    records = [{"model": m, "uuid": u, "ordinal": i} for i, (m, u) in enumerate(gpus)]
    names = [q for m, u in gpus for q in (model_queue(m), device_queue(m, u))]
    info = {"host_label": host}
    register_worker(db, worker_id, version="0.1.0", queues=names, gpus=records, info=info)


@pytest.fixture
def two_hosts(db: Database) -> Database:
    register(db, "w1", "node1", [(H100, "GPU-aaaa-1"), (H100, "GPU-bbbb-2")])
    register(db, "w2", "node2", [(H100, "GPU-cccc-3"), (A100, "GPU-dddd-4")])
    return db


def submit(db: Database, device: str | None = None, name: str = "a run", **more: Any) -> str:
    spec = JobSpec(workload="decode", params={"name": name}, gpu=H100, device=device)
    return insert_run(db, spec=spec, name=name, **more)


def claim(db: Database, asked: str, gpu_id: str, worker_id: str = "w1") -> str | None:
    """Do what a worker's claim does with the message of a run."""
    wanted = front_of_queue(db, asked, gpu_id) or asked
    found = claim_run(db, wanted, worker_id=worker_id, gpu_id=gpu_id, task_id=None)
    return found.run_id if found else None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"{H100}@node1:1", "GPU-bbbb-2"),
        ("h100@node1:0", "GPU-aaaa-1"),
        ("H100@NODE2", "GPU-cccc-3"),
        ("@node2:1", "GPU-dddd-4"),
        ("GPU-dddd-4", "GPU-dddd-4"),
        ("gpu-cccc", "GPU-cccc-3"),
    ],
)
def test_device_is_named_by_model_host_and_index_or_uuid(
    two_hosts: Database, text: str, key: str
) -> None:
    assert resolve_device(devices(two_hosts), text).id == key


@pytest.mark.parametrize("text", ["h100@node3:0", "4090@node1:0", "h100@node1:7", "GPU-eeee"])
def test_unknown_device_lists_what_is_registered(two_hosts: Database, text: str) -> None:
    with pytest.raises(UserError, match=f"{A100}@node2:1, {H100}@node1:0"):
        resolve_device(devices(two_hosts), text)


def test_device_that_fits_twice_lists_both(two_hosts: Database) -> None:
    with pytest.raises(UserError, match=r"GPU-aaaa-1.*GPU-bbbb-2"):
        resolve_device(devices(two_hosts), "h100@node1")


def test_spec_without_a_device_keeps_its_hash() -> None:
    spec = JobSpec(workload="decode", gpu=H100)
    bound = JobSpec(workload="decode", gpu=H100, device="GPU-aaaa-1")
    assert "device" not in spec.as_dict()
    assert JobSpec.from_dict(bound.as_dict()) == bound
    assert bound.comparable_hash == spec.comparable_hash


def test_other_gpu_passes_over_a_run_that_is_bound(two_hosts: Database) -> None:
    bound, free = submit(two_hosts, "GPU-bbbb-2"), submit(two_hosts)
    assert claim(two_hosts, bound, "GPU-aaaa-1") == free
    assert claim(two_hosts, bound, "GPU-aaaa-1") is None
    assert claim(two_hosts, free, "GPU-bbbb-2") == bound


def test_bound_run_that_moved_up_comes_first_on_its_gpu(two_hosts: Database) -> None:
    free, bound = submit(two_hosts), submit(two_hosts, "GPU-aaaa-1")
    move_up(two_hosts, bound)
    assert front_of_queue(two_hosts, free, "GPU-aaaa-1") == bound
    assert front_of_queue(two_hosts, free, "GPU-bbbb-2") == free


def test_idle_worker_is_told_again_of_the_first_run_of_each_queue(two_hosts: Database) -> None:
    free, bound, other = (submit(two_hosts, d) for d in (None, "GPU-bbbb-2", "GPU-cccc-3"))
    submit(two_hosts, "GPU-bbbb-2")
    assert waiting_for(two_hosts, "w1", -1) == [(free, H100, None), (bound, H100, "GPU-bbbb-2")]
    assert waiting_for(two_hosts, "w2", -1) == [(free, H100, None), (other, H100, "GPU-cccc-3")]


def test_queue_names_the_gpu_and_whether_its_worker_is_there(two_hosts: Database) -> None:
    for device in ("GPU-aaaa-1", "GPU-cccc-3", "GPU-gone"):
        submit(two_hosts, device)
    submit(two_hosts)
    worker_stopped(two_hosts, "w2")
    frame = queue(two_hosts)
    names = [f"{H100}@node1:0", f"{H100}@node2:0", "GPU-gone", None]
    assert frame["has_worker"].tolist() == [True, False, False, True]
    assert frame["device_name"].tolist() == names


@pytest.mark.parametrize(
    ("num_runs", "stopped", "device"),
    [(2, None, "GPU-bbbb-2"), (1, None, None), (2, "w1", None)],
    ids=["of a sweep", "alone", "its worker is gone"],
)
def test_retry_of_a_sweeps_run_stays_on_its_gpu(
    two_hosts: Database, num_runs: int, stopped: str | None, device: str | None
) -> None:
    sweep = insert_sweep(two_hosts)
    run_id, *_ = [submit(two_hosts, sweep_id=sweep, name=str(i)) for i in range(num_runs)]
    assert claim(two_hosts, run_id, "GPU-bbbb-2") == run_id
    interrupt_stale(two_hosts, worker_id="w1")
    if stopped:
        worker_stopped(two_hosts, stopped)
    retry(two_hosts, run_id)
    row = next(r for r in list_rows(two_hosts) if r["id"] == run_id)
    assert row.get("device_id") == device


def test_retry_keeps_the_gpu_that_was_asked_for(two_hosts: Database) -> None:
    run_id = submit(two_hosts, "GPU-cccc-3")
    claim(two_hosts, run_id, "GPU-cccc-3", "w2")
    interrupt_stale(two_hosts, worker_id="w2")
    worker_stopped(two_hosts, "w2")
    retry(two_hosts, run_id)
    assert list_rows(two_hosts)[0]["device_id"] == "GPU-cccc-3"


def test_queue_of_a_job_is_its_gpus_or_its_models() -> None:
    assert job_queue(H100, None) == "gpu.nvidia-h100-80gb-hbm3"
    assert job_queue("cpu", "w1/0") == "cpu.w1-0"
