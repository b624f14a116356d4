"""A program of two ranks: print how far a spread model's logits are from the whole model's."""

import json

import torch

from workloads import transformer
from workloads.measure.ranges import Ranges
from workloads.measure.ranks import Ranks, join_ranks
from workloads.program import Context


def difference(parallel: str, ranks: Ranks) -> float:
    """Return the largest difference of a column's sum of logits."""
    p = transformer.Params(
        layers=2, d_model=32, heads=4, ff=64, vocab=32, seq_len=8, batch=2, gpus=2,
        parallel=parallel, mode="train_step", attention="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    context = Context(
        device=torch.device("cpu"),
        pass_name="clean",
        ranks=ranks,
        ranges=Ranges(nvtx=False, annotations=False, nested=False),
    )
    plain = transformer._model(p, context)
    tokens = torch.arange(16).view(2, 8) % p.vocab
    whole = plain(tokens).detach().sum((0, 1))
    spread = transformer._parallel(p, plain, context)
    logits = spread(tokens)
    logits.square().mean().backward()
    transformer._optimizer(p, spread).step()
    return float((logits.detach().sum((0, 1)) - whole).abs().max())


if __name__ == "__main__":
    all_ranks = join_ranks(2, on_gpu=False, is_parallel=True)
    found = {kind: difference(kind, all_ranks) for kind in ("ddp", "fsdp2", "tensor")}
    if all_ranks.rank == 0:
        print(json.dumps(found))
    all_ranks.close()
