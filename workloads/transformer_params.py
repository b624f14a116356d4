"""The parameters of `transformer`, and what follows from them of its sizes."""

from dataclasses import dataclass

from core.errors import UserError
from workloads.llama_params import COMPILE_MODES
from workloads.spec import ParallelParams, param

MODES = ("forward", "forward_backward", "train_step")
PARALLEL = ("none", "ddp", "fsdp2", "tensor")
SCALING = ("strong", "weak")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(ParallelParams):
    """Parameters of `transformer`."""

    layers: int = param(12, doc="layers", minimum=1, maximum=512, smallest=2)
    d_model: int = param(768, doc="model width", minimum=8, maximum=65536, smallest=64)
    heads: int = param(12, doc="attention heads", minimum=1, maximum=1024, smallest=4)
    ff: int = param(3072, doc="hidden width of the MLP", minimum=8, smallest=128)
    vocab: int = param(10_000, doc="vocabulary size", minimum=2, smallest=256)
    seq_len: int = param(
        256, doc="sequence length", unit="tokens", minimum=1, maximum=65536, smallest=32,
        basic=True,
    )  # fmt: skip
    batch: int = param(4, doc="batch size, in sequences", minimum=1, smallest=2, basic=True)
    dtype: str = param(
        "fp32",
        doc="fp32; tf32: fp32 with TF32 matrix products; bf16: autocast over fp32 weights",
        choices=("fp32", "tf32", "bf16"),
        basic=True,
    )
    mode: str = param("forward", doc="what an iteration does", choices=MODES, basic=True)
    attention: str = param(
        "naive", doc="implementation of attention", choices=("naive", "sdpa"), basic=True
    )
    mlp: str = param(
        "gelu",
        doc="MLP with two weight matrices, or with three (gated)",
        choices=("gelu", "swiglu"),
    )
    compile: str = param("none", doc="torch.compile mode", choices=COMPILE_MODES, basic=True)
    keep_graph: bool = param(
        False, doc="mode forward: keep activations as for a backward pass (needs more memory)"
    )
    fused_optimizer: bool = param(False, doc="AdamW as fused kernels instead of foreach")
    parallel: str = param(
        "none", doc="how several GPUs share the work", choices=PARALLEL, basic=True
    )
    scaling: str = param(
        "strong",
        doc="strong: `batch` is split over the GPUs; weak: every GPU gets `batch`",
        choices=SCALING,
    )

    def __post_init__(self) -> None:
        # The class that `slots=True` makes is another one than `super()` without arguments finds.
        ParallelParams.__post_init__(self)
        if self.d_model % self.heads:
            raise UserError(f"d_model: {self.d_model} is not a multiple of heads={self.heads}")
        if self.gpus > 1 and self.parallel == "none":
            raise UserError(f"parallel: gpus={self.gpus} needs one of {', '.join(PARALLEL[1:])}")
        if self.parallel == "ddp" and self.mode == "forward":
            raise UserError("mode: forward has no gradients for parallel=ddp to average")
        if self.job_batch % self.data_ranks:
            raise UserError(f"batch: {self.batch} is not a multiple of gpus={self.gpus}")
        for name in ("heads", "ff", "vocab") if self.parallel == "tensor" else ():
            if getattr(self, name) % self.gpus:
                raise UserError(
                    f"{name}: {getattr(self, name)} is not a multiple of gpus={self.gpus}, "
                    "which parallel=tensor needs"
                )

    @property
    def job_batch(self) -> int:
        """Sequences at once of all GPUs together."""
        return self.batch * (self.gpus if self.scaling == "weak" else 1)

    @property
    def data_ranks(self) -> int:
        """Parts that the batch is cut into: tensor parallel ranks all work on the whole of it."""
        return 1 if self.parallel == "tensor" else self.gpus

    @property
    def rank_batch(self) -> int:
        """Sequences at once of one rank."""
        return self.job_batch // self.data_ranks

    @property
    def weight_share(self) -> float:
        """Part of the weights that one GPU keeps (and, tensor parallel, multiplies with)."""
        return 1 / self.gpus if self.parallel in ("fsdp2", "tensor") else 1.0

    @property
    def num_matrix_weights(self) -> int:
        """Weights of all matrices that multiply tokens: layers and head, not the embeddings."""
        num_mlp = 3 if self.mlp == "swiglu" else 2
        layer = 4 * self.d_model**2 + num_mlp * self.d_model * self.ff
        return self.layers * layer + self.vocab * self.d_model

    @property
    def num_weights(self) -> int:
        """All weights, biases and norms left out (under 1 %)."""
        return self.num_matrix_weights + (self.vocab + self.seq_len) * self.d_model
