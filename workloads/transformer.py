"""A GPT-style language model: forward, forward and backward, or a whole training step (AdamW).

FLOPs of a forward pass: 2 a weight and token for every matrix, plus 4 * S * d_model a token and
layer for scores and their use (the naive code, and this formula, compute the full square);
sdpa is causal and counted at half of that. A backward pass is twice the forward pass
(https://arxiv.org/abs/2001.08361 section 2.1; https://arxiv.org/abs/2204.02311 appendix B).
Sizes are those of the GPT-2 and GPT-3 tables (small to 2.7B), with a vocabulary of 10 000.
Source: https://arxiv.org/abs/2005.14165 table 2.1.

With several GPUs (`parallel`), all PyTorch's own: `ddp` keeps the model on every rank and averages
gradients, `fsdp2` shards weights, gradients and optimizer (`fully_shard` on each block), `tensor`
splits each block's matrices by columns, then rows (Megatron's way,
https://arxiv.org/abs/1909.08053), and the head by columns. The work is counted for one GPU.

Ranges: forward > attention > (attention_scores, softmax, attention_output where naive), mlp;
backward; optimizer. Compiled: top-level phases only.
"""

from typing import Any

from core.model_sizes import MODEL_SIZES
from workloads.program import Context, Program
from workloads.spec import Cost, WorkloadSpec
from workloads.transformer_params import MODES, Params


def cost(p: Params) -> Cost:
    """Return one GPU's work of an iteration; formulas and sources: the module's docstring.

    Bytes: a forward pass reads each weight and writes the logits; a backward pass reads the weights
    again and writes gradients; AdamW reads weight, gradient and two moments and writes three.
    Activations between layers are left out: it is a floor.
    """
    tokens = p.rank_batch * p.seq_len
    split = p.gpus if p.parallel == "tensor" else 1
    square = 4 if p.attention == "naive" else 2
    forward = 2 * tokens * p.num_matrix_weights + square * tokens * p.seq_len * p.d_model * p.layers
    factor = 1 if p.mode == "forward" else 3
    element = 2 if p.dtype == "bf16" else 4
    used = p.num_weights / split * 4
    kept = p.num_weights * p.weight_share * 4
    moved = used + tokens * p.vocab * element
    if p.mode != "forward":
        moved += 2 * used
    if p.mode == "train_step":
        moved += 7 * kept
    return Cost(
        flops=float(factor * forward / split),
        bytes=float(moved),
        flops_dtype=p.dtype,
        num_tokens=p.job_batch * p.seq_len,
    )


def estimate_memory_bytes(p: Params) -> int:
    """Return weights, gradients, optimizer state and kept activations of one GPU, in bytes.

    Activations of one layer and token, in values (after https://arxiv.org/abs/2205.05198 section
    4.1, without dropout): about 10 * d_model + 3 * ff, and with naive attention 3 * heads * S for
    scores, mask result and weights. Without a graph only one layer's are alive.
    """
    tokens = p.rank_batch * p.seq_len
    split = p.gpus if p.parallel == "tensor" else 1
    element = 2 if p.dtype == "bf16" else 4
    copies = {"forward": 1, "forward_backward": 2, "train_step": 4}[p.mode]
    square = 3 * p.heads * p.seq_len if p.attention == "naive" else 0
    layer = tokens * (10 * p.d_model + (3 * p.ff + square) / split) * element
    keeps = p.mode != "forward" or p.keep_graph
    logits = tokens * p.vocab * 4 * (3 if p.mode != "forward" else 1)
    weights = p.num_weights * 4 * p.weight_share
    cast = p.num_matrix_weights * 2 / split if p.dtype == "bf16" else 0
    buckets = p.num_weights * 4 if p.parallel == "ddp" and p.gpus > 1 else 0
    kept = layer * (p.layers if keeps else 1)
    return round(copies * weights + cast + buckets + kept + logits)


def build(p: Params, context: Context) -> Program:
    """Return one iteration of `p.mode` on the context's device."""
    import torch

    from workloads.models.execution import begin_step, compiled, set_matmul_precision

    set_matmul_precision(p.dtype, context)
    device = context.device
    model = _parallel(p, _model(p, context), context)
    if p.parallel != "tensor":  # its ranks work on one batch; the others each have their own
        torch.manual_seed(p.seed + context.ranks.rank)
    tokens = torch.randint(p.vocab, (p.rank_batch, p.seq_len), device=device)
    targets = torch.randint(p.vocab, (p.rank_batch, p.seq_len), device=device)
    forward = compiled(model, p.compile)
    learns = p.mode != "forward"
    optimizer = _optimizer(p, model) if p.mode == "train_step" else None
    kept: list[Any] = []

    def autocast() -> Any:
        return torch.autocast(device.type, torch.bfloat16, enabled=p.dtype == "bf16")

    def run_forward() -> Any:
        with torch.set_grad_enabled(learns or p.keep_graph), autocast():
            logits = forward(tokens)
            if not learns:
                return logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def step() -> None:
        begin_step(p.compile)
        kept.clear()
        with context.ranges.phase("forward"):
            out = run_forward()
        if not learns:
            kept.append(out)
            return
        with context.ranges.phase("backward"):
            out.backward()
        if optimizer is None:
            model.zero_grad(set_to_none=True)
            return
        with context.ranges.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return Program(step=step, compile_mode=p.compile)


def _model(p: Params, context: Context) -> Any:
    import torch

    from workloads.models.execution import inner_ranges
    from workloads.models.gpt import Gpt

    with torch.device(context.device):
        model = Gpt(p, inner_ranges(context, p.compile))
    return model.train(p.mode != "forward")


def _parallel(p: Params, model: Any, context: Context) -> Any:
    """Return the model spread over the ranks."""
    if p.parallel == "none":
        return model
    from workloads.models import gpt

    if p.parallel == "ddp":
        return gpt.replicate(model, context)
    if p.parallel == "fsdp2":
        return gpt.shard(model, context, is_bf16=p.dtype == "bf16")
    return gpt.split_matrices(model, context)


def _optimizer(p: Params, model: Any) -> Any:
    import torch

    # Sharded weights and whole ones cannot be in one call of the optimizer.
    kinds: dict[type, list[Any]] = {}
    for weight in model.parameters():
        kinds.setdefault(type(weight.data), []).append(weight)
    return torch.optim.AdamW(
        [{"params": weights} for weights in kinds.values()],
        lr=1e-4,
        fused=p.fused_optimizer,
        foreach=not p.fused_optimizer,
    )


WORKLOAD = WorkloadSpec(
    name="transformer",
    title="Transformer language model",
    about="A GPT-style model from small to 2.7B: forward, backward and optimizer.",
    source="https://arxiv.org/abs/2005.14165",
    params=Params,
    presets=MODEL_SIZES["transformer"],
    default_preset="small",
    implementations=("naive", "sdpa"),
    phases=("forward", "backward", "optimizer"),
    modes=MODES,
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)
