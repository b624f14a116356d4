"""Category rules for kernels whose library gives them away: BLAS, attention, NCCL, CUB, Eigen."""

from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule


def library_rule(
    id: str, where: F, pattern: str, category: C, example: str, why: str, confidence: float = 0.95
) -> Rule:
    return Rule(
        id=id,
        where=where,
        pattern=pattern,
        category=category,
        example=example,
        why=why,
        confidence=confidence,
    )


ATTENTION_RULES = (
    library_rule(
        "attention.cudnn_sdpa",
        F.TEXT,
        r"cudnn_generated_\w*(?:sdpa|flash|mha)|lean_reduction_kernel"
        r"|cudnn::fusion::(?:convert_dq|compute_dot_do)|flash_[bf]prop_params",
        C.ATTENTION,
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_kernel0_0",
        "cuDNN's runtime-compiled SDPA, the merge of its split-KV parts, its backward's stages",
    ),
    library_rule(
        "attention.flash",
        F.TEXT,
        r"\bflash(?:_attn)?::(?!.*prepare_layer)|pytorch_flash::|[Ff]lash_?(?:[Ff]wd|[Bb]wd"
        r"|[Aa]tt|MLA)"
        r"|flash_(?:splitkv|decode)|compute_attn_(?:ws|1rowblock)|FlashAttn",
        C.ATTENTION,
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false> >(Flash_fwd_params)",
        "FlashAttention 2, 3 and 4; contains cutlass types and is not a GEMM",
    ),
    library_rule(
        "attention.fmha",
        F.TEXT,
        r"^[^<(]*(?:fmha|FMHA|Fmha|mha_v\d|xqa|mmha)|[Aa]ttentionKernel|AttentionBackwardKernel"
        r"|cutlass::fmha",
        C.ATTENTION,
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<T>::P)",
        "fused multi-head attention: xformers / PyTorch mem-efficient, TensorRT-LLM, CUTLASS",
    ),
)

BLAS_RULES = (
    library_rule(
        "gemm.nvjet",
        F.BASE,
        r"^nvjet_",
        C.GEMM,
        "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT",
        "cuBLAS on Hopper and Blackwell: no gemm in the name, runs for M = 1 too",
    ),
    library_rule(
        "gemm.splitk_reduce",
        F.HEAD,
        r"(?i)split_?k(?:_?parallel)?_?reduc|reduce_?split_?k(?!ernel)|splitk_?(?:fixup|epilogue)",
        C.GEMM,
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams)",
        "the reduction of a split-K product counts as gemm by definition",
    ),
    library_rule(
        "other.triangular",
        F.HEAD,
        r"(?i)\b\w*(?:trsm|trsv|trmm|x*trf\d|getr[fs]|potr[fs]|geqr|ormqr|larf[tbg]|sytr|syevj"
        r"|gesvd|trtri)",
        C.OTHER,
        "void trsm_right_kernel<float, 256, 4, false, false>(cublasTrsmParams<float>, float)",
        "triangular solves and factorisations: linear algebra but no matrix product",
    ),
    library_rule(
        "gemv.cublas",
        F.HEAD,
        r"(?i)gemv|(?:^|_)(?:sy|he|tr)mv_|dequantize_mul_mat_vec|mul_mat_vec",
        C.GEMV,
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(P)",
        "matrix-vector product",
    ),
    library_rule(
        "gemv.inner_dot",
        F.HEAD,
        r"(?:^|::)(?:dot_kernel|reduce_1Block_kernel|asum_kernel|nrm2_kernel|iamax_kernel"
        r"|iamin_kernel)$",
        C.REDUCTION,
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const> > >(P)",
        "BLAS level 1 reductions; their parameter types mention gemv",
    ),
    library_rule(
        "elementwise.blas1",
        F.HEAD,
        r"(?:^|::)(?:scal_kernel(?:_\w+)?|axpy_kernel(?:_\w+)?|rot_kernel|ger_kernel)$",
        C.ELEMENTWISE,
        "void axpy_kernel_val<float, double>(cublasAxpyParamsVal<float, double, double>)",
        "BLAS level 1 pointwise updates",
    ),
    library_rule(
        "gemm.blas",
        F.HEAD,
        r"(?i)(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm\d+)_\w*(?:gemm(?!a)"
        r"|xmma)"
        r"|^(?:sy|he)r2?k_kernel"
        r"|^cublas(?:Lt)?::|\bgemmSN|gemmk1|magma_lds\d+_\w*gemm|gemm_kernel\dx\d|\bxmma_new",
        C.GEMM,
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn",
        "cuBLAS's assembled kernels: architecture, precision, instruction, tile, layout",
    ),
    library_rule(
        "gemm.cutlass_cut",
        F.TEXT,
        r"^(?:cutlass::Kernel2?<\s*)?cutlass_\d+_(?:wmma_)?(?:tensorop|simt)_"
        r"|^cutlass::device_kernel<(?:at::cuda::detail|cutlass::gemm::)",
        C.GEMM,
        "void cutlass::Kernel<cutlass_75_tensorop_f16_s1688ge...",
        "CUTLASS's profiler names cut off before gemm; its convolutions bear no architecture",
    ),
    library_rule(
        "gemm.tensile",
        F.BASE,
        r"^Cijk_",
        C.GEMM,
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0_APM1_ABV0_ACED0_AF0EM8",
        "Tensile (rocBLAS, hipBLASLt): Cijk is the contraction's output index set",
    ),
    library_rule(
        "gemm.trtllm_gen",
        F.BASE,
        r"^(?:bmm|gemm|batchedGemm|gemmGatedAct)_\w*(?:_t\d+x\d+|sm1\d\d)",
        C.GEMM,
        "bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_TN_sm100f",
        "TensorRT-LLM's generated (batched) GEMMs",
    ),
)

OLD_TORCH_RULES = (
    library_rule(
        "thc.fill",
        F.TEXT,
        r"kernelPointwiseApply\d<\s*Tensor(?:Fill|Ones|Zero)",
        C.FILL,
        "void kernelPointwiseApply1<TensorFillOp<float>, float, unsigned int, 1>(OffsetInfo, T)",
        "PyTorch before 2019: one pointwise wrapper, the functor tells",
    ),
    library_rule(
        "thc.copy",
        F.TEXT,
        r"kernelPointwiseApply\d<\s*(?:Tensor)?Copy",
        C.COPY,
        "void kernelPointwiseApply2<CopyOp<float, __half>, float, __half>(OffsetInfo)",
        "the same wrapper with a copy",
    ),
    library_rule(
        "eigen.reduce",
        F.TEXT,
        r"Eigen::internal::(?:\w*Reduction\w*|EigenMetaKernel<.*TensorReduction)",
        C.REDUCTION,
        "void Eigen::internal::FullReductionKernel<256, 128, Eigen::internal::SumReducer<T> >(T)",
        "TensorFlow's reductions through Eigen",
    ),
    library_rule(
        "eigen.copy",
        F.TEXT,
        r"EigenMetaKernel<.*Tensor(?:Conversion|Broadcasting|Shuffling|Slicing|Padding)Op",
        C.COPY,
        "void Eigen::internal::EigenMetaKernel<TensorEvaluator<TensorConversionOp<T> > >(T)",
        "TensorFlow's casts and layout moves through Eigen",
    ),
    library_rule(
        "eigen.pointwise",
        F.TEXT,
        r"EigenMetaKernel|\bMapPlan\w*Kernel|mxnet_generic_kernel",
        C.ELEMENTWISE,
        "void Eigen::internal::EigenMetaKernel<TensorEvaluator<TensorAssignOp<T> > >(T)",
        "TensorFlow's pointwise expressions through Eigen, MXNet's through mshadow",
    ),
)

MEMORY_RULES = (
    library_rule(
        "memory.copy",
        F.TEXT,
        r"^\[?(?:CUDA )?[Mm]emcpy ",
        C.COPY,
        "Memcpy HtoD (Pageable -> Device)",
        "a profiler's name of a copy without a kernel",
    ),
    library_rule(
        "memory.set",
        F.TEXT,
        r"^\[?(?:CUDA )?[Mm]emset",
        C.FILL,
        "Memset (Device)",
        "a profiler's name of a fill without a kernel",
    ),
)

COLLECTIVE_RULES = (
    library_rule(
        "collective.nccl",
        F.BASE,
        r"^(?:nccl|rccl|mscclpp?)",
        C.COLLECTIVE,
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "NCCL and RCCL, old and new spelling",
    ),
    library_rule(
        "collective.head",
        F.HEAD_WORDS,
        r"_(?:cross_device_reduce|deep_ep|internode|intranode|internode_ll|nvshmem\w*|symm_mem"
        r"|quickreduce|mscclpp|lamport)_",
        C.COLLECTIVE,
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*, float*, int*)",
        "all-reduce and expert-parallel exchange outside NCCL",
        0.85,
    ),
)

MOE_RULES = (
    library_rule(
        "moe.namespace",
        F.HEAD,
        r"\bmoe::.*(?:[Pp]ermute|[Ff]inalize|[Rr]outing|[Ii]nputRow)",
        C.MOE,
        "void moe::dev::permute::permuteKernel<moe::dev::permute::KernelParams<T, 4> >(P)",
        "the namespace says whose rows are moved",
        0.85,
    ),
)

CUB_RULES = (
    library_rule(
        "cub.reduce",
        F.TEXT,
        r"(?:cub::.*|^)Device(?:(?:Segmented)?Reduce(?!ByKey)|SegmentFixup)"
        r"|thrust::.*[Rr]educe(?:Agent|_kernel)",
        C.REDUCTION,
        "void cub::DeviceReduceSingleTileKernel<cub::Policy600>(T*, int)",
        "CUB's device-wide reductions",
    ),
    library_rule(
        "cub.index",
        F.TEXT,
        r"\bDevice(?:Scan|Radix|Segmented|Histogram|Select|Partition|Merge|Unique|RunLength|Compact"
        r"|Adjacent|Batch|Reduce|Rle|For)\w*|thrust::.*(?:[Ss]can|[Ss]ort|[Uu]nique|[Pp]artition"
        r"|[Mm]erge"
        r"|copy_if|set_|lower_bound|upper_bound|gather|scatter)",
        C.INDEX,
        "void cub::DeviceRadixSortOnesweepKernel<cub::Policy800, false, int, int>(int*, int*)",
        "CUB's and Thrust's scans, sorts, selections",
    ),
    library_rule(
        "cub.fill",
        F.TEXT,
        r"thrust::.*(?:uninitialized_fill|__fill|fill_n|sequence|tabulate)",
        C.FILL,
        "void thrust::cuda_cub::core::_kernel_agent<thrust::__parallel_for::ParallelForAgent<"
        "thrust::cuda_cub::__uninitialized_fill::functor<int> > >(int)",
        "Thrust fills through parallel_for",
    ),
    library_rule(
        "cub.for_each",
        F.TEXT,
        r"\bthrust::|cub::.*(?:for_each|transform)",
        C.ELEMENTWISE,
        "void thrust::cuda_cub::core::_kernel_agent<thrust::__parallel_for::ParallelForAgent<"
        "thrust::cuda_cub::__transform::unary_transform_f<int*> > >(int)",
        "Thrust transforms through parallel_for",
        0.7,
    ),
)
