"""Category rules for kernels whose library gives them away: BLAS, cuDNN, attention, NCCL, CUB."""

from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule


def _rule(
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
    _rule(
        "attention.cudnn_sdpa",
        F.TEXT,
        r"cudnn_generated_\w*(?:sdpa|flash|mha)|lean_reduction_kernel",
        C.ATTENTION,
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_kernel0_0",
        "cuDNN's runtime-compiled SDPA; lean_reduction merges its split-KV parts",
    ),
    _rule(
        "attention.flash",
        F.TEXT,
        r"\bflash(?:_attn)?::(?!.*prepare_layer)|pytorch_flash::|[Ff]lash_?(?:[Ff]wd|[Bb]wd|[Aa]tt|MLA)"
        r"|flash_(?:splitkv|decode)|compute_attn_(?:ws|1rowblock)|FlashAttn",
        C.ATTENTION,
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false> >(Flash_fwd_params)",
        "FlashAttention 2, 3 and 4; contains cutlass types and is not a GEMM",
    ),
    _rule(
        "attention.fmha",
        F.TEXT,
        r"^[^<(]*(?:fmha|FMHA|Fmha|mha_v\d|xqa|mmha)|[Aa]ttentionKernel|AttentionBackwardKernel"
        r"|cutlass::fmha",
        C.ATTENTION,
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<T>::P)",
        "fused multi-head attention: xformers / PyTorch mem-efficient, TensorRT-LLM, CUTLASS",
    ),
)

CONV_RULES = (
    _rule(
        "conv.norm_in_cudnn",
        F.TEXT,
        r"cudnn.*(?:::|_)(?:bn_|batch_?norm|norm_)|\bbn_[fb]w_|[Bb]atchNorm|nhwc_batch_norm",
        C.NORM,
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)",
        "cuDNN's batch norm; checked before its convolutions",
    ),
    _rule(
        "conv.layout_in_cudnn",
        F.HEAD,
        r"(?i)tensorTransform|nhwcToNchw|nchwToNhwc|nhwc_?to_?nchw|nchw_?to_?nhwc|nhwcTofolded"
        r"|addPadding|NhwcToFolded|convertTensor_|tensor_?layout",
        C.COPY,
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(cudnn::params_t)",
        "layout moves round a convolution",
    ),
    _rule(
        "conv.pool_in_cudnn",
        F.HEAD,
        r"cudnn.*pooling|pooling_[fb]w",
        C.REDUCTION,
        "void cudnn::ops::pooling_fw_4d_kernel<float, float, cudnn::maxpooling_func<float> >(int)",
        "pooling is a windowed reduction",
    ),
    _rule(
        "conv.pointwise_in_cudnn",
        F.HEAD,
        r"op_tensor_kernel|OpTensor|op_generic_tensor|cudnn.*(?:activation|scalar?Prod|[Aa]dd[Tt]ensor)"
        r"|(?:LSTM|GRU|RNN)_elementWise|RNN.*elementwise",
        C.ELEMENTWISE,
        "void op_generic_tensor_kernel<3, float, float, float, 256, (cudnnGenericOp_t)0>(int)",
        "cuDNN's pointwise tensor operations and RNN gates",
    ),
    _rule(
        "conv.softmax_in_cudnn",
        F.HEAD,
        r"cudnn.*softmax|softmax_[fb]w_\w*cudnn",
        C.SOFTMAX,
        "void cudnn::ops::softmax_fw_small_kernel<2, float, float, 256, 1>(cudnnTensorStruct)",
        "cuDNN's softmax",
    ),
    _rule(
        "conv.xmma",
        F.TEXT,
        r"(?:fprop|dgrad|wgrad|[Cc]onv(?:olution|2d|3d))\w*_(?:implicit|indexed|optimized|analytic"
        r"|warp_specialized|direct)|s\d+(?:fprop|dgrad|wgrad)|implicit_(?:convolve|gemm)"
        r"|xmma_(?:\w+_)?(?:fprop|dgrad|wgrad)|cutlass::conv::|ImplicitGemmConvolution",
        C.CONV,
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
        "implicit-GEMM convolution: gemm in the name, forward and gradients of a convolution",
    ),
    _rule(
        "conv.cudnn",
        F.TEXT,
        r"scudnn|cudnn::(?:cnn|winograd|detail::(?:implicit|explicit|wgrad|dgrad|fft))|cudnn.*[Cc]onv"
        r"|winograd|conv2d_grouped|(?:dgrad|wgrad|fprop)2d_|first_layer_\w*kernel|convolve"
        r"|kern_precompute_indices|computeOffsetsKernel|computeBOffsets|computeWgrad\w*Offsets"
        r"|flip_filter|fft2d_[rc]2[rc]|im2col|col2im|vol2col|cudnn.*(?:fprop|dgrad|wgrad|xmma_conv)"
        r"|dgrad_engine|wgrad_alg|explicit_convolve|naive_conv|miopen\w*[Cc]onv|igemm_(?:fwd|bwd|wrw)"
        r"|grouped_conv|conv_depthwise",
        C.CONV,
        "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(cudnn::winograd::P)",
        "cuDNN, MIOpen and CK convolutions with their set-up, transform and reduction stages",
    ),
)

BLAS_RULES = (
    _rule(
        "gemm.nvjet",
        F.BASE,
        r"^nvjet_",
        C.GEMM,
        "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT",
        "cuBLAS on Hopper and Blackwell: no gemm in the name, runs for M = 1 too",
    ),
    _rule(
        "gemm.splitk_reduce",
        F.HEAD,
        r"(?i)split_?k(?:_?parallel)?_?reduc|reduce_?split_?k|splitk_?(?:fixup|epilogue)",
        C.GEMM,
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams)",
        "the reduction of a split-K product counts as gemm by definition",
    ),
    _rule(
        "other.triangular",
        F.HEAD,
        r"(?i)\b\w*(?:trsm|trsv|trmm|x*trf\d|getr[fs]|potr[fs]|geqrf|syevj|gesvd|trtri)",
        C.OTHER,
        "void trsm_right_kernel<float, 256, 4, false, false>(cublasTrsmParams<float>, float)",
        "triangular solves and factorisations: linear algebra but no matrix product",
    ),
    _rule(
        "gemv.cublas",
        F.HEAD,
        r"(?i)gemv|(?:^|_)(?:sy|he|tr)mv_|dequantize_mul_mat_vec|mul_mat_vec",
        C.GEMV,
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(P)",
        "matrix-vector product",
    ),
    _rule(
        "gemv.inner_dot",
        F.HEAD,
        r"(?:^|::)(?:dot_kernel|reduce_1Block_kernel|asum_kernel|nrm2_kernel|iamax_kernel|iamin_kernel)$",
        C.REDUCTION,
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const> > >(P)",
        "BLAS level 1 reductions; their parameter types mention gemv",
    ),
    _rule(
        "elementwise.blas1",
        F.HEAD,
        r"(?:^|::)(?:scal_kernel(?:_\w+)?|axpy_kernel(?:_\w+)?|rot_kernel|ger_kernel)$",
        C.ELEMENTWISE,
        "void axpy_kernel_val<float, double>(cublasAxpyParamsVal<float, double, double>)",
        "BLAS level 1 pointwise updates",
    ),
    _rule(
        "gemm.blas",
        F.HEAD,
        r"(?i)(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm\d+)_\w*(?:gemm(?!a)|xmma)"
        r"|^cublas(?:Lt)?::|\bgemmSN|gemmk1|gemm_kernel\dx\d|\bxmma_new",
        C.GEMM,
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn",
        "cuBLAS's assembled kernels: architecture, precision, instruction, tile, layout",
    ),
    _rule(
        "gemm.tensile",
        F.BASE,
        r"^Cijk_",
        C.GEMM,
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0_APM1_ABV0_ACED0_AF0EM8",
        "Tensile (rocBLAS, hipBLASLt): Cijk is the contraction's output index set",
    ),
    _rule(
        "gemm.trtllm_gen",
        F.BASE,
        r"^(?:bmm|gemm|batchedGemm|gemmGatedAct)_\w*(?:_t\d+x\d+|sm1\d\d)",
        C.GEMM,
        "bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_TN_sm100f",
        "TensorRT-LLM's generated (batched) GEMMs",
    ),
)

OLD_TORCH_RULES = (
    _rule(
        "thc.fill",
        F.TEXT,
        r"kernelPointwiseApply\d<\s*Tensor(?:Fill|Ones|Zero)",
        C.FILL,
        "void kernelPointwiseApply1<TensorFillOp<float>, float, unsigned int, 1>(OffsetInfo, T)",
        "PyTorch before 2019: one pointwise wrapper, the functor tells",
    ),
    _rule(
        "thc.copy",
        F.TEXT,
        r"kernelPointwiseApply\d<\s*(?:Tensor)?Copy",
        C.COPY,
        "void kernelPointwiseApply2<CopyOp<float, __half>, float, __half>(OffsetInfo)",
        "the same wrapper with a copy",
    ),
)

COLLECTIVE_RULES = (
    _rule(
        "collective.nccl",
        F.BASE,
        r"^(?:nccl|rccl|mscclpp?)",
        C.COLLECTIVE,
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "NCCL and RCCL, old and new spelling",
    ),
    _rule(
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

CUB_RULES = (
    _rule(
        "cub.reduce",
        F.TEXT,
        r"(?:cub::.*|^)Device(?:Segmented)?Reduce(?!ByKey)|thrust::.*[Rr]educe(?:Agent|_kernel)",
        C.REDUCTION,
        "void cub::DeviceReduceSingleTileKernel<cub::Policy600>(T*, int)",
        "CUB's device-wide reductions",
    ),
    _rule(
        "cub.index",
        F.TEXT,
        r"\bDevice(?:Scan|Radix|Segmented|Histogram|Select|Partition|Merge|Unique|RunLength|Compact"
        r"|Adjacent|Batch|Reduce)\w*|thrust::.*(?:[Ss]can|[Ss]ort|[Uu]nique|[Pp]artition|[Mm]erge"
        r"|copy_if|set_|lower_bound|upper_bound|gather|scatter)",
        C.INDEX,
        "void cub::DeviceRadixSortOnesweepKernel<cub::Policy800, false, int, int>(int*, int*)",
        "CUB's and Thrust's scans, sorts, selections",
    ),
    _rule(
        "cub.fill",
        F.TEXT,
        r"thrust::.*(?:uninitialized_fill|__fill|fill_n|sequence|tabulate)",
        C.FILL,
        "void thrust::cuda_cub::core::_kernel_agent<thrust::__parallel_for::ParallelForAgent<"
        "thrust::cuda_cub::__uninitialized_fill::functor<int> > >(int)",
        "Thrust fills through parallel_for",
    ),
    _rule(
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
