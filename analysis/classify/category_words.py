"""Category rules on plain words: hand-written kernels of any project, by what they say they do.

Tried on the words of the base name, then of the whole head with its namespaces, then of template
arguments and parameters. Earlier rules win: the more specific word first (quantise before scale).
"""

from analysis.classify.category_words_model import MODEL_RULES, word_rule
from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule

_PRODUCTS = (
    word_rule(
        "bias_gradient",
        r"backward_bias\w*|bias_backward\w*|bias_grad\w*|grad_bias\w*|dbias\w*",
        C.REDUCTION,
        "matmul_backward_bias_kernel5",
        "a bias gradient is a column sum",
    ),
    word_rule(
        "gemv",
        r"\w*gemv\w*|mat_?vec\w*|\w*mat_vec\w*|mv|vec_?mat\w*|mul_mat_vec\w*",
        C.GEMV,
        "naiveMatVec",
        "matrix-vector product",
    ),
    word_rule(
        "gemm",
        r"_(?:(?!fbgemm)\w*gemm(?!a)\w*|\w*matmul\w*|mat_?mul\w*"
        r"|matrix_?mul\w*|matrix_product|mm|mmq?|mmf|bmm|addmm|baddbmm|\w*wmma\w*|w?gmma|mma"
        r"|mul_mat\w*|linear\w*|\w+_proj(?:ection)?\w*|projection\w*|\w*marlin\w*|machete|split_?k\w*|nvjet|\w*scaled_mm\w*|nn_dense\w*|lora_(?:shrink|expand)\w*|[sb]gmv\w*|\w*_mm)_",
        C.GEMM,
        "tiledMatMul",
        "matrix product in any spelling",
        unless=r"_(?:bilinear|trilinear|linear_interp)_",
    ),
    word_rule(
        "gemm_tiling",
        r"\w*(?:block|warp|thread|1d|2d)_?tiling\w*|gmem_coalesc\w*|global_mem_coalesc\w*"
        r"|shared_mem_block\w*|smem_coalesc\w*",
        C.GEMM,
        "warptiling",
        "hand-written products named for their tiling",
        0.6,
    ),
)

_DATA = (
    word_rule(
        "random",
        r"_(?:rand\w*|philox\w*|curand\w*|generate_seed\w*|gen_sequenced|monte_carlo\w*|zipf\w*|bernoulli\w*|uniform|gaussian|rng\w*)_",
        C.RANDOM,
        "curandInitialize",
        "generators",
        unless=r"_dropout_",
    ),
    word_rule(
        "fill_first",
        r"^_(?:k_)?(?:zero|fill|mem_?set|clear|reset|init)_",
        C.FILL,
        "zero_amax_kernel",
        "a verb in front: what it names is the thing filled",
    ),
    word_rule(
        "permute_data",
        r"permute_\w*(?:data|lengths|sparse|embeddings)\w*",
        C.INDEX,
        "permute_2D_data_kernel",
        "FBGEMM's permutations gather by an index",
    ),
    word_rule(
        "activation",
        r"\w*silu\w*|\w*gelu\w*|\w*relu\w*|\w*glu|swiglu\w*|geglu\w*|sigmoid\w*|tanh\w*|softplus"
        r"|mish|elu|selu|hard_?swish|activation\w*|act_and\w*|dropout\w*|softcap\w*|dyt|swish\w*|d?gated_act\w*|fg|\w*dw_dfg|(?:exact|approx)_(?:for|back)ward\w*|\w*sigmoid\w*|\w*penalt\w*|temperature\w*",
        C.ELEMENTWISE,
        "_silu_and_mul_forward_kernel",
        "activations, quantised output or not",
    ),
    word_rule(
        "quantise",
        r"(?=.*_(?:\w*quant\w*|\w*dequantize\w*|cast\w*|convert\w*|repack\w*|\w*_to_fp\d+"
        r"|upcast\w*|downcast\w*|\w*_to_(?:float|half|bf16|fp\w*|int\d*|lowp|e\dm\d\w*)|\w*qu?ati[sz]e\w*)_)",
        C.COPY,
        "per_token_group_quant_8bit_kernel",
        "quantise, dequantise, cast and repack change the format, not the value",
        unless=r"_add_",
    ),
    word_rule(
        "index",
        r"(?=.*_(?:sampl\w*|top_?[kp]\w*|min_p|radix\w*|sort\w*|arg_?sort\w*|bitonic\w*"
        r"|scan\w*|cum_?sum\w*|cumprod|prefix\w*|gather\w*|scatter\w*|index\w*|indices|indptr"
        r"|non_?zero|unique\w*|histogram\w*|hist|bincount|bucketize\w*|searchsorted|binary_search"
        r"|select\w*|partition\w*|compact\w*|take|beam\w*|n_?gram\w*|verify\w*|req_to_token\w*"
        r"|slot_mapping\w*|position_ids|positions?|page_table\w*|block_table\w*|seq_?lens?|seqlens"
        r"|get_rows\w*|set_rows\w*|extend_kernel|accept\w*|rejection\w*|\w*cumsum\w*|lookup\w*|prepare_\w*inputs?|num_kv_splits|bad_words|stop_words|criterion)_)",
        C.INDEX,
        "radixTopKKernel",
        "gather, scatter, sort, top-k, scan, sampling and their bookkeeping",
        unless=r"_concat_",
    ),
    word_rule(
        "reduction",
        r"reduc\w*|sum\w*|mean\w*|a?max\w*|a?min|argmax\w*|argmin\w*|variance|std|nrm2|asum|dot"
        r"|dot_product\w*|count\w*|average\w*|avg\w*|\w*pool(?:ing)?\w*|squared_norm\w*|norm",
        C.REDUCTION,
        "amax_kernel",
        "sums, maxima, pooling",
        0.65,
    ),
    word_rule(
        "fill",
        r"fill\w*|mem_?set\w*|zero\w*|ones|init\w*|set_?(?:value|const|zero)\w*|arange|iota|clear\w*"
        r"|fill_buffer\w*",
        C.FILL,
        "vec_fill_kernel",
        "constant fills",
        0.65,
    ),
    word_rule(
        "arithmetic",
        r"add\w*|mul|sub|div|residual\w*|bias\w*|fma|\w*axpy\w*|exp|log|sqrt|vec(?:tor)?_?add\w*"
        r"|\w*pointwise\w*|element_?wise\w*|lerp|vadd|vec_?\w*add",
        C.ELEMENTWISE,
        "vectorAdd",
        "pointwise arithmetic",
        0.65,
    ),
    word_rule(
        "copy",
        r"\w*copy\w*|\w*cpy\w*|\w*swizzle\w*|transform\d\w*|jagged_to_\w+|dense_to_\w+|\w*col32\w*|row_major\w*|transpose\w*|\w*permute\w*|concat\w*|cat|reshape\w*|pack\w*|unpack\w*"
        r"|shuffle\w*|pad\w*|unpad\w*|layout\w*|nchw\w*|nhwc\w*|memcpy\w*|transfer\w*|roll|repeat\w*"
        r"|repkv|expand\w*|slice\w*|split\w*|contiguous|stack|interleave\w*|swap\w*|store|reorder\w*"
        r"|rearrange\w*|flip|tile|broadcast\w*|quantize\w*",
        C.COPY,
        "Transpose_Kernel",
        "layout moves",
        0.65,
    ),
    word_rule(
        "pointwise",
        r"scal\w*|mask\w*|clamp\w*|clip\w*|penalt\w*|bcast\w*|unary\w*|binary\w*|tanh\w*|where|neg"
        r"|abs|pow|square|sin|cos|black_?scholes\w*|upscale\w*|upsampl\w*|interpolat\w*|timestep\w*"
        r"|sinusoid\w*|\w*biases|ternary|apply\w*|hadamard\w*|\w*alibi\w*|transducer_joint\w*|sinkhorn\w*|act",
        C.ELEMENTWISE,
        "vec_scaling",
        "weaker signs of pointwise work",
        0.5,
    ),
    word_rule(
        "other",
        r"fft\w*|\w*rnn\w*|lstm\w*|gru\w*|stencil\w*|n_?body\w*|sleep\w*|spin\w*|empty|null\w*|nop|dummy|warm_?up\w*"
        r"|heat\w*|jacobi\w*|spmv\w*|spmm\w*|csr(?:mv|mm)\w*|cusparse\w*|solve\w*|delay\w*|assert\w*|check\w*|print\w*|flush\w*|\w*kernel_args\w*|wait\w*|signal\w*|bandwidth\w*|stream\w*",
        C.OTHER,
        "empty_kernel",
        "recognised and none of the classes",
        0.5,
    ),
)

WORD_RULES = MODEL_RULES + _PRODUCTS + _DATA

SIGNATURE_RULES = (
    Rule(
        id="signature.gemm",
        where=F.TEXT,
        pattern=r"\((?:int|unsigned int|size_t|long), (?:int|unsigned int|size_t|long), (?:int"
        r"|unsigned int|size_t|long), (?:(?:float|double|__half), )?(?:const )?\w+(?: const)? ?\*, "
        r"(?:const )?\w+(?: const)? ?\*, (?:(?:float|double|__half), )?\w+ ?\*\)",
        category=C.GEMM,
        example="void warps_and_blocks<32>(int, int, int, float, const float *, const float *, "
        "float, float *)",
        why="M, N, K, alpha, A, B, beta, C: the argument order of a BLAS product",
        confidence=0.5,
    ),
)
