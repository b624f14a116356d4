"""Category rules for CPU operators (self time of `aten::...` in a PyTorch trace)."""

from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule


def _rule(id: str, pattern: str, category: C, example: str, why: str) -> Rule:
    return Rule(
        id=f"cpu.{id}",
        where=F.BASE,
        pattern=rf"^(?:{pattern})$",
        category=category,
        example=example,
        why=why,
        confidence=0.95,
    )


CPU_RULES = (
    _rule(
        "attention",
        r"_?(?:scaled_dot_product|flash|efficient|fused_sdp)\w*attention\w*|_native_multi_head\w*"
        r"|_transformer_encoder\w*",
        C.ATTENTION,
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "fused attention",
    ),
    _rule(
        "gemv",
        r"mv|addmv_?|dot|vdot",
        C.GEMV,
        "aten::mv",
        "matrix-vector product",
    ),
    _rule(
        "gemm",
        r"mm|addmm_?|bmm|baddbmm_?|matmul|q?linear(?:_(?:dynamic|pointwise|relu|unpacked)\w*)?"
        r"|einsum|addbmm|_?scaled_mm|_?int_mm|mkldnn_linear\w*|_?mkl_linear"
        r"|_weight_int\w+|chain_matmul|tensordot|bilinear|_linear_pointwise",
        C.GEMM,
        "aten::addmm",
        "matrix products (oneDNN and MKL beneath)",
    ),
    _rule(
        "conv",
        r"_?(?:mkldnn_|thnn_|slow_|cudnn_|miopen_)?_?conv\w*|mkldnn_convolution\w*|_slow_conv\w*",
        C.CONV,
        "aten::mkldnn_convolution",
        "convolutions",
    ),
    _rule(
        "loss",
        r"\w*(?:nll_loss|_loss|cross_entropy|kl_div|ctc_loss)\w*",
        C.LOSS,
        "aten::nll_loss_forward",
        "losses",
    ),
    _rule("softmax", r"\w*softmax\w*|logsumexp", C.SOFTMAX, "aten::_softmax", "softmax"),
    _rule(
        "norm",
        r"\w*(?:layer|rms|batch|group|instance)_norm\w*",
        C.NORM,
        "aten::native_layer_norm",
        "norms",
    ),
    _rule(
        "optimizer",
        r"_foreach_(?!copy)\w+|_fused_(?:adam|sgd|adagrad)\w*|_amp_\w+",
        C.OPTIMIZER,
        "aten::_fused_adamw_",
        "foreach and fused optimizers",
    ),
    _rule(
        "embedding",
        r"\w*embedding\w*",
        C.EMBEDDING,
        "aten::embedding_dense_backward",
        "table look-up",
    ),
    _rule(
        "random",
        r"(?:rand|randn|randint|randperm|normal|uniform|bernoulli|exponential|multinomial|random"
        r"|log_normal|cauchy|geometric)(?:_like)?_?",
        C.RANDOM,
        "aten::normal_",
        "generators",
    ),
    _rule(
        "copy",
        r"copy_|_to_copy|to|clone|contiguous|cat|_?stack|repeat|_foreach_copy_?|constant_pad_nd|pad"
        r"|roll|flip|_reshape_alias|_copy_from\w*|type_as|repeat_interleave|im2col|unfold|fold",
        C.COPY,
        "aten::copy_",
        "casts and layout changes",
    ),
    _rule(
        "fill",
        r"fill_|zero_|zeros\w*|ones\w*|full\w*|empty\w*|new_\w+|arange|linspace|eye|scalar_tensor"
        r"|resize_?|set_|_efficientzerotensor",
        C.FILL,
        "aten::fill_",
        "allocation and constant fills",
    ),
    _rule(
        "index",
        r"_?index\w*|gather\w*|scatter\w*|sort|argsort|topk|cumsum\w*|cumprod|nonzero\w*|unique\w*"
        r"|_unique\w*|masked_(?:select|scatter)\w*|take\w*|bucketize|searchsorted|histc|bincount"
        r"|isin|where_index|_local_scalar_dense|item|kthvalue|median",
        C.INDEX,
        "aten::index_put_",
        "gather, scatter, sort, scan",
    ),
    _rule(
        "reduction",
        r"sum|mean|max|min|amax|amin|argmax|argmin|prod|var|std|var_mean|std_mean|any|all|norm"
        r"|linalg_vector_norm|\w*pool\w*|count_nonzero|logsumexp|aminmax|equal|allclose|trace",
        C.REDUCTION,
        "aten::sum",
        "sums, maxima, pooling",
    ),
    _rule(
        "view",
        r"view\w*|_unsafe_view|reshape|t|transpose_?|permute|expand\w*|slice\w*|select\w*|narrow"
        r"|squeeze_?|unsqueeze_?|as_strided_?|detach_?|alias|split\w*|chunk|unbind|flatten|movedim"
        r"|diagonal|lift_fresh|result_type|is_nonzero|stride|size|numpy_T|swapaxes|broadcast_tensors",
        C.OTHER,
        "aten::as_strided",
        "views move no data",
    ),
    _rule(
        "elementwise",
        r"\w+",
        C.ELEMENTWISE,
        "aten::silu",
        "every other operator is pointwise",
    ),
)
"""Tried where the name is `aten::...`; the last rule takes every operator."""

COMPILED_RULES = (
    Rule(
        id="cpu.compiled",
        where=F.TEXT,
        pattern=r"^(?:#+ Call CompiledFxGraph|CompiledFxGraph|Torch-Compiled Region|TorchDynamo "
        r"|Pregraph bytecode|AOTDispatcher |AOTAutograd|CompiledFunction|Compiled ?Autograd)",
        category=C.OTHER,
        example="TorchDynamo Cache Lookup",
        why="torch.compile's steps; kernels of a compiled graph are not recorded one by one",
        confidence=0.95,
    ),
    Rule(
        id="cpu.framework",
        where=F.TEXT,
        pattern=r"^(?:enumerate\(DataLoader\)|torch::autograd::|autograd::engine::"
        r"|[A-Za-z]\w*Backward\d+$|DistributedDataParallel\.|record_param_comms|profiler::_record"
        r"|inductor::|detach_?$)",
        category=C.OTHER,
        example="autograd::engine::evaluate_function: AddmmBackward0",
        why="PyTorch's own bookkeeping and data loading; operators beneath have rows of their own",
        confidence=0.95,
    ),
)
