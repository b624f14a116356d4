"""Category rules for kernels that XLA (JAX, TensorFlow) and ONNX Runtime name after fusions."""

from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule


def _rule(id: str, pattern: str, category: C, example: str, why: str, confidence: float) -> Rule:
    return Rule(
        id=f"xla.{id}",
        where=F.BASE,
        pattern=pattern,
        category=category,
        example=example,
        why=why,
        confidence=confidence,
    )


XLA_RULES = (
    _rule(
        "gemm",
        r"^(?:gemm_fusion|triton_gemm|nested_gemm_fusion|cublas_\w*fusion)\w*|^\w*_dot_fusion",
        C.GEMM,
        "gemm_fusion_dot_3",
        "XLA's Triton GEMM fusions",
        0.9,
    ),
    _rule(
        "softmax",
        r"^triton_softmax\w*",
        C.SOFTMAX,
        "triton_softmax_8",
        "XLA calls every normalisation diamond softmax: softmax or a norm",
        0.6,
    ),
    _rule(
        "reduction",
        r"^input_(?:\w+_)?reduce(?:_window)?_fusion\w*|^(?:wrapped|loop)_reduce\w*|^input_multiply_reduce\w*",
        C.REDUCTION,
        "input_reduce_fusion_2",
        "reduction fusions",
        0.8,
    ),
    _rule(
        "index",
        r"^(?:input_|loop_|wrapped_)(?:\w*_)?(?:scatter|gather|sort|dynamic_update_slice)\w*",
        C.INDEX,
        "wrapped_scatter",
        "gather, scatter and in-place slices",
        0.7,
    ),
    _rule(
        "copy",
        r"^(?:input_|loop_|wrapped_)(?:\w*_)?(?:transpose|concatenate|copy|convert|slice|pad"
        r"|bitcast)\w*$|^copy_fusion",
        C.COPY,
        "wrapped_transpose",
        "layout changes",
        0.7,
    ),
    _rule(
        "fill",
        r"^(?:loop_|wrapped_)(?:broadcast|iota)\w*",
        C.FILL,
        "loop_broadcast_fusion",
        "constants",
        0.7,
    ),
    _rule(
        "elementwise",
        r"^(?:loop_|wrapped_|input_)\w+|^(?:\w+_)?fusion(?:_\d+)*$",
        C.ELEMENTWISE,
        "loop_add_fusion",
        "other fusions are pointwise",
        0.5,
    ),
    _rule(
        "amd_copy",
        r"^__amd_rocclr_copy",
        C.COPY,
        "__amd_rocclr_copyBuffer",
        "ROCm's blit kernels",
        0.95,
    ),
    _rule(
        "amd_fill",
        r"^__amd_rocclr_fill",
        C.FILL,
        "__amd_rocclr_fillBufferAligned",
        "ROCm's blit kernels",
        0.95,
    ),
)
