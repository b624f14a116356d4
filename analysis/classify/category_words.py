"""Category rules on plain words: hand-written kernels of any project, by what they say they do.

Tried on the words of the base name, then of the whole head with its namespaces, then of template
arguments and parameters. Earlier rules win: the more specific word first (quantise before scale).
"""

from analysis.classify.category_words_model import MODEL_RULES, word_rule
from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule

_VERB_FIRST = (
    word_rule(
        "moves_data",
        r"^_(?:k_|gpu_|cuda_)?(?:interleave|reorder|repack|transpose|copy|cast|cvt|convert|concat"
        r"|rearrange"
        r"|swizzle|rebuild|remove_padding|k?dequant(?:ize)?(?=_mm_)|tma_align)_",
        C.COPY,
        "interleave_int4_weights_for_mixed_gemm_kernel",
        "a verb in front: what follows is only what is moved or what it is moved for",
        unless=r"_(?:add|conv(?!e)\w*|softmax|norm|attention|attn|kv|cache|scan|index\w*|indices)_"
        r"|^_transpose_\w*(?:mm"
        r"|matmul|gemm)_",
    ),
    word_rule(
        "arithmetic_first",
        r"^_(?:general_)?add_(?:\w+_)?bias_|^_(?:divide|sum_(?:arrays?|matri\w+)|multiply"
        r"|subtract|negate)_",
        C.ELEMENTWISE,
        "addRelativeAttentionBias",
        "the verb in front says what is done, the rest only to what",
        unless=r"_(?:\w*norm\w*|softmax|conv\w*|gemm)_",
    ),
)

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
        r"\w*gemv\w*|mat_?vec\w*|\w*mat_vec\w*|(?:add)?mv|vec_?mat\w*|mul_mat_vec\w*"
        r"|weight_only_batched\w*",
        C.GEMV,
        "naiveMatVec",
        "matrix-vector product",
    ),
    word_rule(
        "gemm",
        r"_(?:\w*(?<!fb)(?<!deep_)gemm(?!a)\w*|\w*matmul\w*|mat_?mul\w*"
        r"|matrix_?mul\w*|matrix_product|mm|mmq?|mmf|bmm|addmm|baddbmm|\w*wmma\w*|w?gmma|mma"
        r"|mul_mat\w*|linear(?!i[sz]e)\w*|strassen\w*|dense_kernel\w*|simt|lora|gett"
        r"|mma\d+x\d+\w*|weight_only\w*"
        r"|\w+_proj(?:ection)?\w*"
        r"|projection\w*|\w*marlin\w*|machete|split_?k(?!ernel)\w*|\w*gmm\w*|nvjet"
        r"|\w*scaled_mm\w*|nn_dense\w*"
        r"|\w*lora_(?:shrink|expand|kernel)\w*|[sb]gmv\w*|\w*_mm|swap_?ab)_",
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
        r"_(?:rand\w*|philox\w*|curand\w*|generate_seed\w*|gen_sequenced|monte_carlo\w*|zipf\w*"
        r"|bernoulli\w*|exponential\w*|(?<!scaling_)uniform|gaussian(?!_(?:blur|filter))"
        r"|quasirandom\w*|initstates|init_curand\w*|rng\w*)_",
        C.RANDOM,
        "curandInitialize",
        "generators",
        unless=r"_(?:dropout|sampl\w*)_",
    ),
    word_rule(
        "fill_first",
        r"^_(?:k_|gpu_)?(?:zero|fill|mem_?set|clear|clean|reset|init|set_(?:vector|value|zero"
        r"|const|array|float|int\d*)|vector_set)_",
        C.FILL,
        "zero_amax_kernel",
        "a verb in front: what it names is the thing filled",
        unless=r"_(?:quant|kv|page|cache|curand|index\w*|indices)_",
    ),
    word_rule(
        "permute_data",
        r"permute_\w*(?:data|lengths|sparse|embeddings|embs)\w*",
        C.INDEX,
        "permute_2D_data_kernel",
        "FBGEMM's permutations gather by an index",
    ),
    word_rule(
        "activation",
        r"\w*silu\w*|\w*gelu\w*|\w*relu\w*|\w*glu|swiglu\w*|geglu\w*|sigmoid\w*|tanh\w*|softplus"
        r"|mish|s?c?elu|hard_?(?:swish|shrink|tanh)|soft_?shrink|threshold|clamp\w*|activation\w*"
        r"|act_and\w*|dropout\w*|softcap\w*|dyt|swish\w*|d?gated_act\w*|fg|\w*dw_dfg|(?:exact"
        r"|approx)_(?:for|back)ward\w*|\w*sigmoid\w*|\w*penal[ti]\w*|soft_?sign|temperature\w*",
        C.ELEMENTWISE,
        "_silu_and_mul_forward_kernel",
        "activations, quantised output or not",
    ),
    word_rule(
        "quantise",
        r"(?=.*_(?:\w*quant\w*|\w*dequantize\w*|cast\w*|convert\w*|repack\w*|\w*_to_fp\d+"
        r"|upcast\w*|downcast\w*|to_(?:mx|nv)?fp\d+|to_int\d+|fp\d+_to_\w+|\w*_to_(?:float|half"
        r"|bf16|fp\w*|int\d*|lowp|e\dm\d\w*)|\w*qu?ati[sz]e\w*|\w*qparams?"
        r"|\w*fused\w*bitrowwise\w*|scale_\d+x\d+)_)",
        C.COPY,
        "per_token_group_quant_8bit_kernel",
        "quantise, dequantise, cast and repack change the format, not the value",
        unless=r"_add_|_quantiles?_",
    ),
    word_rule(
        "index",
        r"(?=.*_(?:sampl\w*|gumbel\w*|slots?|build_tree\w*|segment_(?:coo|csr|reduce)\w*|histo\w*"
        r"|eagle_\w+|next_token\w*|knn|ball_query|three_nn"
        r"|\w*last_token\w*|token_ids"
        r"|mapped_idx\w*|reindex\w*|\w*sort"
        r"|top_?[kp]\w*|min_p|radix\w*|sort\w*|arg_?sort\w*|bitonic\w*"
        r"|scan\w*|cum_?sum\w*|cum(?:prod|min|max)\w*|quantiles?|median|kth_?value|multinomial\w*"
        r"|nms\w*|find(?!_neigh)\w*|dups?|dedup\w*|isin|src2dst\w*|run_?length\w*|rle|hash\w*"
        r"|prefix\w*|gather\w*|scatter\w*|index\w*|indices|indptr"
        r"|non_?zero|unique\w*|histogram\w*|hist|bincount|bucketize\w*|searchsorted|binary_search"
        r"|select\w*|partition\w*|compact\w*|take|beam\w*|n_?gram\w*|verify\w*|req_to_token\w*"
        r"|slot_mapping\w*|\w*_locs?|position_ids|positions?|page_table\w*|block_table\w*|seq_?lens?|seqlens"
        r"|get_rows\w*|set_rows\w*|extend_kernel|accept\w*|rejection\w*|\w*cumsum\w*|lookup\w*"
        r"|prepare_\w*inputs?|num_kv_splits|bad_words|stop_words|criterion)_)",
        C.INDEX,
        "radixTopKKernel",
        "gather, scatter, sort, top-k, scan, sampling and their bookkeeping",
        unless=r"_concat_",
    ),
    word_rule(
        "reduction",
        r"(?:all|any)_kernel\w*|reduc\w*|sum\w*|mean\w*|a?max\w*|a?min|argmax\w*|argmin\w*"
        r"|variance|std|nrm2|asum|dot"
        r"|dot_product\w*|count\w*|\w*roi_(?:align|pool)\w*|\w*absmax\w*|\w*absmean\w*|average\w*"
        r"|avg\w*|prod|trace|auc"
        r"|scalar_prod\w*"
        r"|\w*similarity\w*|v?dot_\w+|vdot|\w*pool(?:ing)?\w*|squared_norm\w*|norm",
        C.REDUCTION,
        "amax_kernel",
        "sums, maxima, pooling",
        0.65,
    ),
    word_rule(
        "fill",
        r"fill\w*|mem_?set\w*|zero\w*|ones|full|eye|linspace|logspace|init\w*|set_?(?:value|const"
        r"|zero)\w*|arange|iota|clear\w*"
        r"|fill_buffer\w*",
        C.FILL,
        "vec_fill_kernel",
        "constant fills",
        0.65,
    ),
    word_rule(
        "arithmetic",
        r"add\w*|inc|incr\w*|negate\w*|complement|gr[ae]y_?scale|nv12\w*|yuv\w*|plus\w*|minus\w*"
        r"|r?sub|mul|mult|multiply\w*|div|fmod|rem|remainder|\w*floordiv|logical|bitwise|maximum"
        r"|minimum|(?:eq|ne|[gl][te])_func|\w*isnan|isinf|isfinite|isclose|nan_to_num|erf|atan"
        r"|angle|trunc|reciprocal|r?sqrt\w*|exp2|log2|polar|token_shift|[tc]_?mix\w*|(?:time"
        r"|channel)_mix\w*|k_update|shrink|kda_gate"
        r"|gdn_gate|gate|residual\w*|bias\w*|fma|\w*axpb?y\w*|exp|log|sqrt|vec(?:tor)?_?add\w*"
        r"|\w*pointwise\w*|element_?wise\w*|lerp|vadd|vec_?\w*add",
        C.ELEMENTWISE,
        "vectorAdd",
        "pointwise arithmetic",
        0.65,
    ),
    word_rule(
        "copy",
        r"\w*copy\w*|\w*cpy\w*|\w*swizzle\w*|transform_?\d\w*|arrange\w*|write_back|shift\w*"
        r"|(?:decod\w*|prefill)_cache\w*|jagged_to_\w+|dense_to_\w+|\w*col32\w*|row_major\w*"
        r"|transpose\w*|\w*permute\w*|concat\w*|cat|reshape\w*|pack\w*|unpack\w*"
        r"|shuffle\w*|pad\w*|unpad\w*|layout\w*|nchw\w*|nhwc\w*|memcpy\w*|transfer\w*|roll"
        r"|repeat\w*"
        r"|replicat\w*|repkv|expand\w*|slice\w*|split\w*|contiguous|[hv]?stack|interleave\w*|trans"
        r"|\w*remap\w*|diag|triu|tril|kron|merge|outer|swap\w*|store|reorder\w*"
        r"|rearrange\w*|\w*flip|tile|broadcast\w*|quantize\w*",
        C.COPY,
        "batch_permute_kernel",
        "layout moves",
        0.65,
    ),
    word_rule(
        "pointwise",
        r"scal(?:e\w*|ing\w*)?|mask\w*|clip\w*|penalt\w*|bcast\w*|unary\w*|binary\w*|tanh\w*"
        r"|where|neg"
        r"|abs|pow|square|sin|cos|black_?scholes\w*|upscale\w*|ups?ampl\w*|\w*bitmask\w*"
        r"|interpolat\w*|timestep\w*"
        r"|func|sinusoid\w*|\w*biases|ternary|apply\w*|hadamard\w*|\w*alibi\w*"
        r"|transducer_joint\w*|sinkhorn\w*|act",
        C.ELEMENTWISE,
        "vec_scaling",
        "weaker signs of pointwise work",
        0.5,
    ),
    word_rule(
        "other",
        r"\w*iou|\w*_eigh?|eigen\w*|bfs|dfs|sssp|page_?rank|floyd\w*|mcts|k_?means\w*|centroids?|non_?bonded\w*"
        r"|options?"
        r"|i?dct\w*|wavelets?|d?fwt\w*|dwt\w*|triangles?|voxels?|disparity|quadtree"
        r"|conjugate_gradient|integrat\w*|derivatives?|neighbou?rs?|forces?|body\w*|particles?"
        r"|velocit\w*"
        r"|collision\w*|energy|life|prepare\w*|prep|plan|setup|metadata|publish\w*|preflight"
        r"|lattice\w*|laplac\w*|diffusion|wave|mandelbrot|julia|ray\w*|render\w*|fft\w*|\w*rnn\w*"
        r"|lstm\w*|gru\w*|stencil\w*|n_?body\w*|sleep\w*|spin\w*|empty|null\w*|nop|dummy"
        r"|warm_?up\w*"
        r"|heat\w*|jacobi\w*|spmv\w*|spmm\w*|csr(?:mv|mm)\w*|cusparse\w*|solve\w*|delay\w*"
        r"|assert\w*|check\w*|print\w*|flush\w*|\w*kernel_args\w*|wait\w*|signal\w*|bandwidth\w*"
        r"|stream\w*",
        C.OTHER,
        "empty_kernel",
        "recognised and none of the classes",
        0.5,
    ),
)

_LAST = (
    word_rule(
        "attention_phase",
        r"(?:pa_)?(?:prefill|decode)\w*",
        C.ATTENTION,
        "pa_prefill_16mx8_kernel",
        "a serving phase and nothing else: the attention of that phase",
        0.4,
    ),
)

WORD_RULES = _VERB_FIRST + MODEL_RULES + _PRODUCTS + _DATA + _LAST

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
