"""Parameters and costs that the Llama workloads share. No torch here."""

from dataclasses import dataclass

from core.errors import UserError
from core.model_sizes import DTYPE_BYTES
from workloads.spec import CommonParams, Cost, param

COMPILE_MODES = ("none", "default", "reduce-overhead", "max-autotune")
LLAMA_SOURCE = "https://arxiv.org/abs/2302.13971"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaParams(CommonParams):
    """What every Llama workload has."""

    layers: int = param(1, doc="layers", minimum=1, maximum=512, smallest=1, basic=True)
    d_model: int = param(4096, doc="model width", minimum=8, maximum=65536, smallest=64, basic=True)
    heads: int = param(32, doc="query heads", minimum=1, maximum=1024, smallest=4, basic=True)
    kv_heads: int = param(
        32, doc="key and value heads; fewer than query heads is GQA", minimum=1, smallest=2
    )
    ff: int = param(11008, doc="hidden width of the MLP", minimum=8, smallest=128)
    vocab: int = param(
        0, doc="vocabulary size; 0 leaves out embedding and output head", minimum=0, smallest=0
    )
    batch: int = param(
        1, doc="batch size, in sequences", minimum=1, maximum=4096, smallest=1, basic=True
    )
    dtype: str = param(
        "bf16", doc="type of weights and activations", choices=("fp32", "bf16", "fp16"),
        smallest="fp32", basic=True,
    )  # fmt: skip
    rope: bool = param(True, doc="rotary position embedding")
    attention: str = param(
        "sdpa", doc="sdpa, or naive with a range around each part", choices=("sdpa", "naive")
    )
    compile: str = param("none", doc="torch.compile mode", choices=COMPILE_MODES, basic=True)

    def __post_init__(self) -> None:
        if self.d_model % self.heads:
            raise UserError(f"d_model: {self.d_model} is not a multiple of heads={self.heads}")
        if self.heads % self.kv_heads:
            raise UserError(f"heads: {self.heads} is not a multiple of kv_heads={self.kv_heads}")
        if self.head_dim % 2:
            raise UserError(f"d_model: head dim {self.head_dim} is odd; it must be even")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads

    @property
    def kv_dim(self) -> int:
        return self.head_dim * self.kv_heads

    @property
    def num_layer_weights(self) -> int:
        """Weights of the matrices of one layer: q, k, v, o and the three of SwiGLU."""
        d = self.d_model
        return 2 * d * d + 2 * d * self.kv_dim + 3 * d * self.ff

    @property
    def num_weights(self) -> int:
        """Weights of all matrices, the embedding table included."""
        return self.layers * self.num_layer_weights + 2 * self.vocab * self.d_model


def check_cuda_graph(cuda_graph: bool, compile_mode: str) -> None:
    """Raise UserError for a graph captured by hand around code that captures its own."""
    if cuda_graph and compile_mode in ("reduce-overhead", "max-autotune"):
        raise UserError(
            f"cuda_graph: on cannot be combined with compile={compile_mode}, "
            "which captures its own; use compile=none or default"
        )


def decode_cost(p: LlamaParams, *, context: int, weight_bytes: int) -> Cost:
    """Return the work of one token for each sequence, attending `context` tokens.

    FLOPs: 2 for every weight of a matrix and sequence (multiply and add), and 4 * context * d_model
    a layer and sequence for scores and their use. Bytes: every matrix weight once (one embedding
    row is nothing), the keys and values read and one of each written.
    Formulas: https://arxiv.org/abs/2001.08361 section 2.1; https://arxiv.org/abs/2211.05102.
    """
    matrices = p.layers * p.num_layer_weights + p.vocab * p.d_model
    flops = 2 * p.batch * matrices + 4 * p.batch * p.layers * context * p.d_model
    element = DTYPE_BYTES[p.dtype]
    cache_bytes = 2 * p.layers * p.batch * (context + 1) * p.kv_dim * element
    return Cost(
        flops=float(flops),
        bytes=float(matrices * weight_bytes + cache_bytes),
        flops_dtype=p.dtype,
        num_tokens=p.batch,
    )


def prefill_cost(p: LlamaParams, *, seq_len: int) -> Cost:
    """Return the work of a whole prompt.

    FLOPs: 2 a weight and token, and causal attention 2 * S^2 * d_model a layer and sequence (half
    of the 4 * S^2 * d_model of a full square); the head is counted for every token, as it is run.
    Bytes: weights once, the tokens' activations in and out of each layer, and the cache written.
    """
    tokens = p.batch * seq_len
    matrices = p.layers * p.num_layer_weights + p.vocab * p.d_model
    flops = 2 * tokens * matrices + 2 * p.batch * p.layers * seq_len**2 * p.d_model
    element = DTYPE_BYTES[p.dtype]
    moved = matrices + 2 * p.layers * tokens * (p.d_model + p.kv_dim) + tokens * p.vocab
    return Cost(
        flops=float(flops),
        bytes=float(moved * element),
        flops_dtype=p.dtype,
        num_tokens=tokens,
    )


def llama_memory_bytes(p: LlamaParams, *, length: int, new_tokens: int, weight_bytes: int) -> int:
    """Return weights, cache and the widest activations, in bytes."""
    element = DTYPE_BYTES[p.dtype]
    weights = p.layers * p.num_layer_weights * weight_bytes + 2 * p.vocab * p.d_model * element
    cache = 2 * p.layers * p.batch * length * p.kv_dim * element
    tokens = p.batch * new_tokens
    activations = tokens * (4 * p.d_model + 3 * p.ff + 2 * p.vocab) * element
    if p.attention == "naive":
        activations += p.batch * p.heads * new_tokens * length * (2 * element + 4)
    return weights + cache + activations
