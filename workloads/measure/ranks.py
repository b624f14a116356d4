"""The ranks of a job over several GPUs: one process each, started with torchrun's environment.

`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT` are read as torchrun sets them.
The ranks must do the same collectives in the same order, so what depends on a clock (how long to
warm up) is decided by rank 0 for all.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from core.errors import UserError

COLLECTIVE_TIMEOUT_S = 300
"""A collective that waits longer ends its rank: another rank hangs or is gone."""
RECORDED_PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among the ranks of its job."""

    rank: int = 0
    size: int = 1
    is_distributed: bool = False
    "Whether a process group is up: also with one rank, when the workload is a parallel one."

    def agree(self, value: bool) -> bool:
        """Return rank 0's value on every rank; waits for all of them."""
        if not self.is_distributed:
            return value
        import torch
        import torch.distributed as dist

        answer = torch.tensor([int(value)])
        dist.broadcast(answer, src=0)
        return bool(answer.item())

    def barrier(self) -> None:
        """Wait until every rank is here. On the host: it puts nothing on a GPU."""
        if self.is_distributed:
            import torch
            import torch.distributed as dist

            dist.all_reduce(torch.zeros(1))

    def close(self) -> None:
        """Leave the job; only when all ranks do, else it may wait for one that is gone."""
        if self.is_distributed:
            import torch.distributed as dist

            dist.destroy_process_group()


def join_ranks(num_gpus: int, *, on_gpu: bool, is_parallel: bool) -> Ranks:
    """Return this process's place; joins the process group if the job has several ranks."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size != num_gpus:
        raise UserError(
            f"gpus: {num_gpus} ranks are wanted and WORLD_SIZE is {size}; start them with "
            f"`warpboard run` or `torchrun --nproc-per-node {num_gpus}`"
        )
    if size == 1 and not is_parallel:
        return Ranks()
    import torch
    import torch.distributed as dist

    timeout = timedelta(seconds=COLLECTIVE_TIMEOUT_S)
    options: dict[str, Any] = {"backend": "gloo"}
    if on_gpu:
        local = int(os.environ.get("LOCAL_RANK", 0))
        torch.cuda.set_device(local)
        # CPU tensors go over gloo: what the ranks agree on must not appear among the GPU's work.
        options = {"backend": "cpu:gloo,cuda:nccl"}
    if size == 1:
        store: Any = torch.distributed
        options |= {"store": store.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(timeout=timeout, **options)
    return Ranks(rank=rank, size=size, is_distributed=True)


def ranks_environment(ranks: Ranks, *, on_gpu: bool) -> dict[str, Any]:
    """Return what of the environment shapes collectives: backend, NCCL's version and settings."""
    if not ranks.is_distributed:
        return {}
    import torch

    facts: dict[str, Any] = {"collectives": "nccl" if on_gpu else "gloo", "num_ranks": ranks.size}
    if on_gpu:
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    settings = {k: v for k, v in sorted(os.environ.items()) if k.startswith(RECORDED_PREFIXES)}
    return facts | {name.lower(): value for name, value in settings.items()}


def late(step: Callable[[], Any], delay_ms: float, context: Any) -> Callable[[], Any]:
    """Return the step of a straggler: it waits for its GPU, sleeps, and only then goes on."""

    def late_step() -> Any:
        with context.ranges.nested("straggler_sleep"):
            if context.on_gpu:
                import torch

                torch.cuda.synchronize()
            time.sleep(delay_ms / 1e3)
        return step()

    return late_step
