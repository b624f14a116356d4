"""Category rules on plain words for the parts of a model: attention, norms, losses, experts.

Earlier rules win: the more specific word first (cross entropy before softmax before attention).
"""

from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule


def word_rule(
    id: str,
    words: str,
    category: C,
    example: str,
    why: str,
    confidence: float = 0.75,
    *,
    unless: str = "",
) -> Rule:
    """Make a rule; `words` is an alternation of whole words unless it is a pattern by itself."""
    return Rule(
        id=f"words.{id}",
        where=F.WORDS,
        pattern=words if words.startswith(("(?=", "_", "^")) else rf"_(?:{words})_",
        category=category,
        example=example,
        why=why,
        confidence=confidence,
        unless=unless,
    )


MODEL_RULES = (
    word_rule(
        "collective",
        r"all_?reduce\w*|all_?gather\w*|reduce_?scatter\w*|all_?to_?all\w*|a2a\w*|cross_device\w*"
        r"|send_?recv|nvshmem\w*|nvls|multimem\w*|lamport\w*|halos|halo_exchange\w*|one_?shot\w*"
        r"|two_?shot\w*"
        r"|quick_?reduce|barrier\w*|(?:cached_)?notify_(?:dispatch|combine)|cached_notify"
        r"|dispatch_layout|(?:hybrid_)?(?:dispatch|combine)_impl|(?:combine|reserve)_publish\w*"
        r"|ipc_\w*push\w*|pp_(?:send|recv)|low_latency_buffer|p2p\w*|internode\w*|intranode\w*"
        r"|ncclx?|wait_signal|send_signal|\w*user_?buffers?\w*|push_(?:recv|send)\w*",
        C.COLLECTIVE,
        "twoShotAllReduceKernel",
        "communication between devices, fused extras included",
        unless=r"_(?:block|warp|cta|thread)_all_?reduce\w*_",
    ),
    word_rule(
        "pointers",
        r"(?=.*_(?:ptrs?|args|pointers?|problem_sizes?|gemm_starts|\w*tensor_?maps?"
        r"|tma_descriptors?"
        r"|gemm_args|compute_strides\w*|kernel_args)_)",
        C.OTHER,
        "get_group_gemm_starts",
        "prepares arguments of a later kernel",
        0.5,
        unless=r"_kernel_.+_kernel_args_$",
    ),
    word_rule(
        "weight_layout",
        r"\w*repack\w*|\w*prepack\w*|act_quant\w*|reconstruct\w*|quantize_mmq\w*"
        r"|make_sequential\w*|permute_(?:cols|rows)"
        r"|shuffle_weight\w*",
        C.COPY,
        "gptq_marlin_repack_kernel",
        "lays out weights for a later product",
    ),
    word_rule(
        "cache_write",
        r"(?=.*_(?:append|reuse|fill|flatten|process|refresh|rotate|arrange|store|set|write"
        r"|update|copy"
        r"|swap|move|reshape|concat|gather|transfer|load|save|destindex)_)(?=.*_(?:\w*kv\w*"
        r"|cache\w*"
        r"|mla\w*|blocks)_)",
        C.COPY,
        "reshape_and_cache_flash_kernel",
        "KV-cache writes and moves are copies",
        unless=r"_(?:prefill|decode|attn|attention|norm)_",
    ),
    word_rule(
        "state_space",
        r"_(?:selective_\w*scan\w*|selective_state\w*|\w*kda(?!_gate)\w*|gdn(?!_gate)\w*"
        r"|\w*segsum\w*|\w*delta_product\w*|mesa_net\w*|gdr|\w*gated_delta\w*|ttt\w*|(?:ssm"
        r"|ssd)(?!_conv)|chunk_scan\w*|chunk_state\w*|state_passing\w*"
        r"|chunk_cumsum\w*|r?wkv\d*\w*|mamba\d*|\w*delta_rule\w*|fused_recurrent\w*"
        r"|(?:fused_)?chunk(?:wise)?_\w*(?:fwd|bwd)"
        r"\w*|recompute_w_u\w*|\w*wy_repr\w*|\w*_inverse|(?:parallel|fused)_(?:\w+_)?(?:gla|based"
        r"|rebased)_\w*|solve_tril\w*|chunk_local\w*|chunk_(?:gla|simple_gla|scaled_dot)\w*"
        r"|linear_attn\w*|lightning_attn\w*)_",
        C.OTHER,
        "_chunk_scan_fwd_kernel",
        "state-space and linear-recurrence scans",
        unless=r"_(?:bmm|conv\w*|softmax|cross_entropy|loss|layer_norm|rms_norm)_",
    ),
    word_rule(
        "conv",
        r"_(?:\w*conv(?!e)\w*|dgrad\w*"
        r"|wgrad\w*|im2_?col\w*|\w*blur\w*|sobel\w*|upfirdn\w*|box_?filter\w*|im2d2_?col|col2im\w*"
        r"|depthwise\w*|winograd\w*)_",
        C.CONV,
        "_causal_conv1d_update_kernel",
        "convolutions",
        unless=r"_gemm_",
    ),
    word_rule(
        "moe_gemm",
        r"(?=.*_(?:\w*moe\w*|experts?|router|grouped)_)(?=.*_(?:\w*gemm(?!a)\w*|mm|matmul|marlin"
        r"|wna16|mul_mat\w*)_)|^_(?:fused|invoke_fused)?_?moe_kernel|_fused_moe_kernel",
        C.GEMM,
        "fused_moe_kernel_gptq_awq",
        "grouped expert products",
    ),
    word_rule(
        "moe",
        r"\w*moe\w*|experts?\w*|expt\w*|sparse_mixer\w*|shuffle_input_rows?|source_rows?"
        r"|topk_?gating\w*|gating\w*|routing\w*|router\w*|expand_input_rows"
        r"|sort_chunks\w*|chunk_sort\w*|row_id_map\w*|(?:un)?permute_tokens|permute_with_mask\w*"
        r"|unpermute_with\w*|token_permut\w*|\w*noaux_tc\w*|\w+_dispatch|dispatch_\w+"
        r"|tokens_per_\w+|grouped_topk\w*|mm_ids\w*|topk_softmax"
        r"|(?<!bwd_)finalize_(?:kernel|deep_?seek)\w*|fused_mapping|reduce_fused\w*"
        r"|expand_to_fused\w*|pre_reorder\w*"
        r"|post_reorder\w*|deepep\w*"
        r"|seg_indptr\w*|ep_(?:scatter|gather)\w*|topk_sigmoid|regroup",
        C.MOE,
        "count_and_sort_expert_tokens_kernel",
        "routing and expert dispatch",
        unless=r"_loss_|_(?:silu|swiglu|gelu|activation)_",
    ),
    word_rule(
        "loss",
        r"\w*cross_?entropy\w*|\w*x_?entropy\w*|nll\w*|hinge\w*|triplet\w*|contrastive\w*|ppl"
        r"|perplexity|mse|bce\w*|kl_?div\w*|ctc\w*|\w*loss\w*|ce|jsd\w*"
        r"|tv_distance|huber\w*|fused_classifier|grpo\w*|dpo\w*|focal",
        C.LOSS,
        "fused_classifier_kernel5",
        "losses, softmax fused in",
    ),
    word_rule(
        "softmax",
        r"(?=.*_(?:\w*softmax\w*|soft_max\w*|sparsemax\w*|logsumexp\w*|normalized_probs?)_)",
        C.SOFTMAX,
        "attention_softmax_kernel1",
        "softmax, of an unfused attention too",
        unless=r"_(?:flash|fmha|sampl\w*)_",
    ),
    word_rule(
        "attention_mask",
        r"(?:attn|attention|causal)_mask\w*",
        C.ELEMENTWISE,
        "build_causal_attention_mask_kernel",
        "builds or applies a mask",
        0.6,
    ),
    word_rule(
        "attention",
        r"(?=.*_(?:flash(?!infer)\w*|neighborhood\w*|gdpa\w*|thd_\w+_correction|na[123]d|(?:with"
        r"|paged)_kv\w*"
        r"|fmha\w*|mha\w*|mmha"
        r"|attention\w*|attend\w*|attn\w*|att|sage\w*|sdpa\w*|f?mla|xqa\w*|gqa\w*|mqa\w*"
        r"|split_?kv\w*|nsa"
        r"|hstu|simplicial|lse|state_merge|merge_states?"
        r"|merge_attn\w*|tree_reduce_lse|merge_states_kernel)_)|_(?:prefill|decode)_"
        r"with_\w*kv|_merge_states?_|^_(?:(?:fwd|bwd)_(?:grouped_)?kernel|(?:fwd|bwd"
        r"|backward)_preprocess)_"
        r"|_lse_combine_"
        r"|_(?:fwd|bwd)_(?:dq|dkdv|dk_dv|dkv)_|_bwd_kernel_d[kqv]|^_parallel_\w+_(?:fwd"
        r"|bwd)_kernel",
        C.ATTENTION,
        "paged_attention_v2_reduce_kernel",
        "fused attention, its split-KV merge and its backward's stages",
        unless=r"_mla_rope_|_metadata_|_(?:permute|transpose|copy|indices|indptr|(?<!num_)index|gather"
        r"|scatter|penalty"
        r"|padding)_",
    ),
    word_rule(
        "table_batched_embedding",
        r"split_embedding\w*|l[fr]u_\w*|lxu_\w*|ssd_cache\w*|dense_embedding\w*"
        r"|embedding_backward\w*|ssd_embedding\w*|tbe\w*",
        C.EMBEDDING,
        "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1",
        "FBGEMM's table-batched embeddings update the table inside their backward",
    ),
    word_rule(
        "optimizer",
        r"adam\w*|lamb(?!da)\w*|sgd\w*|lion\w*|adagrad\w*|rmsprop\w*|ademamix\w*|muon\w*"
        r"|optimizer\w*|opt_step\w*|multi_tensor\w*|unscale\w*|clip_grad\w*|grad_clip\w*"
        r"|gradient_clip"
        r"\w*|precondition\w*|\w*param_update\w*|update_(?:param|weight|ema)\w*|ada_hessian\w*"
        r"|apply_gradients?|global_norm\w*"
        r"|grad_norm\w*|momentum\w*|(?:check_)?(?:non_?)?finite\w*|check_finite\w*",
        C.OPTIMIZER,
        "adamw_kernel3",
        "parameter update, gradient scaling and clipping",
        unless=r"_(?:un)?(?:swizzle|pad|transpose|quantize|cast)_",
    ),
    word_rule(
        "rotary",
        r"(?=.*_(?:m?rope\w*|rotary\w*|yarn|freqs_cis)_)",
        C.ELEMENTWISE,
        "rope_norm",
        "rotary embedding is pointwise; llama.cpp calls its plain variant norm",
        unless=r"_(?:\w*qk_norm|rms\w*|layer_?norm)_",
    ),
    word_rule(
        "norm",
        r"_(?:\w*(?:layer|rms|batch|group|instance|weight"
        r"|qk|l2|channel|add|residual|adaptive)_?norm\w*|norms?|rms|normali[sz]e|normali[sz]ation"
        r"|ln|bn"
        r"|gn|ln_\w+|bn_\w+|welford\w*|gamma_beta\w*|rstd|cu_compute_(?:part_)?grad\w*"
        r"|fused_residual|layer_norm\w*)_",
        C.NORM,
        "fused_residual_forward_kernel5",
        "layer, RMS, batch, group norm; llm.c fuses the residual add into the norm",
        unless=r"_(?:\w*matmul\w*|\w*gemm(?!a)\w*)_|_(?:vector|grad|lp|frobenius|two)_norm",
    ),
    word_rule(
        "embedding",
        r"^_lookup_(?:kernel_)?$|_(?:\w*embedding\w*|embed\w*|encoder_(?:forward|backward)\w*"
        r"|w[tp]e\w*|(?:enc|dec|patch|word|tok|token)_emb\w*|vocab\w*|token_lookup)_",
        C.EMBEDDING,
        "encoder_forward_kernel3",
        "table look-up; llm.c calls it encoder, wte and wpe",
        unless=r"_(?:timestep|sinusoid\w*)_",
    ),
)
