"""Category rules for PyTorch's own kernels (`at::native`); a functor decides inside a wrapper."""

from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F
from analysis.classify.rule import Rule

_WRAPPED = r"^\S*?(?:elementwise_kernel|index_kernel)\w*<.*?"


def _rule(id: str, pattern: str, category: C, example: str, why: str, where: F = F.HEAD) -> Rule:
    return Rule(
        id=f"aten.{id}",
        where=where,
        pattern=pattern,
        category=category,
        example=example,
        why=why,
        confidence=0.95,
    )


def _wrapped(id: str, functors: str, category: C, functor: str, why: str) -> Rule:
    example = f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}>(int, T2)"
    return _rule(id, rf"{_WRAPPED}(?:{functors})", category, example, why, F.TEXT)


ATEN_RULES = (
    _rule(
        "foreach_copy",
        r"multi_tensor_apply_kernel.*(?:CopyFunctor|Copy<)",
        C.COPY,
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<int> >(T)",
        "_foreach_copy_ moves data and updates nothing",
        F.TEXT,
    ),
    _rule(
        "foreach",
        r"multi_t|lpnorm_cleanup|FusedAdam|FusedSgd|FusedAdagrad|amp_(?:non_finite|update)"
        r"|_amp_foreach",
        C.OPTIMIZER,
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMath>(T)",
        "_foreach_ and fused optimizers, gradient clipping and scaling",
    ),
    _rule(
        "random",
        r"^(?:\S*::)?distribution|random_from_to|normal_and_transform"
        r"|uniform_and_transform|bernoulli_(?:kernel|scalar|tensor)|randperm|distribution_nullary"
        r"|poisson_cuda|binomial_cuda|multinomial_\w*distribution_seed",
        C.RANDOM,
        "void at::native::distribution_elementwise_grid_stride_kernel<float, 4>(int, T2)",
        "random generators",
    ),
    _rule(
        "scan_by_index",
        r"^\S*(?:tensor_kernel_scan|_scatter_gather_elementwise|indexFunc|index_elementwise"
        r"|indexFill"
        r"|indexAdd|indexCopy|indexing_backward|index_put|gatherTopK|gatherKth|gatherMedian"
        r"|radixFindKth|radixSortKV|bitonicSort|warpMergeSort|sort_postprocess|segmented_sort"
        r"|write_indice|sampleMultinomial|renormRows|searchsorted|kernelHistogram|compute_mode"
        r"|compute_cuda_kernel|cunn_\w*select|computeBlock|countRadix|computeDigitCumSum|mbtopk"
        r"|sbtopk"
        r"|block_bucketize|nonzero|coalesce|fill_index|flag_kernel|fill_reverse|masked_scatter)",
        C.INDEX,
        "void at::native::radixSortKVInPlace<-2, -1, 128, 32, float, long>(Info, int)",
        "gather, scatter, index, sort, top-k, scan",
    ),
    _rule(
        "embedding",
        r"^\S*(?:embedding|EmbeddingBag|emb_bag|vectorized_gather|indexSelect|compute_grad"
        r"|krn_parti|compute_num_|sum_and_scat|renorm_kernel)",
        C.EMBEDDING,
        "void at::native::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(Info)",
        "table look-up and the stages of its backward",
    ),
    _rule(
        "loss",
        r"^\S*(?:nll_loss|ctc_loss|mse_loss|multi_?margin|MultiMargin|MultiLabelMargin|kl_div"
        r"|binary_cross_entropy|cross_entropy|cosine_embedding|smooth_l1)",
        C.LOSS,
        "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(T1 *, T1 *)",
        "losses as their own kernel",
    ),
    _wrapped(
        "loss_functor",
        r"mse_kernel|mse_backward|binary_cross_entropy|smooth_l1|huber_kernel|huber_backward|kl_div"
        r"|l1_loss|nll_loss",
        C.LOSS,
        "mse_kernel_cuda(at::TensorIterator&)::{lambda()#1}",
        "pointwise losses: the functor tells",
    ),
    _rule(
        "softmax",
        r"^(?!.*XEntropy)\S*(?i:softmax|soft_max)",
        C.SOFTMAX,
        "void at::native::cunn_SoftMaxForwardSmem<8, float, float, Epilogue>(float*)",
        "softmax and log-softmax, forward and backward",
    ),
    _rule(
        "norm",
        r"^\S*(?:[Ll]ayer_?[Nn]orm|[Bb]atch_?[Nn]orm|[Gg]roup_?[Nn]orm|rms_?norm|RMSNorm"
        r"|weight_norm"
        r"|vectorized_l|RowwiseMomen|GammaBeta|ComputeInter|ComputeFused"
        r"|ComputeGradientFused"
        r"|Compute1dBackwardFused|ComputeBackwardFused|layer_norm_grad|cuComputeGra|cuApplyLayer"
        r"|cuComputePart|batch_norm|GN[A-Z]\w+)",
        C.NORM,
        "void at::native::RowwiseMomenCUDAKernel<float>(long, float, float const*, float*)",
        "layer, batch, group and RMS norm with the stages of their backward",
    ),
    _wrapped(
        "scaler_functor",
        r"_?amp_(?:foreach_)?(?:non_finite|update)",
        C.OPTIMIZER,
        "_amp_non_finite_check_and_unscale_cuda_(at::Tensor&)::{lambda()#1}",
        "gradient scaling through the elementwise wrapper",
    ),
    _wrapped(
        "norm_functor",
        r"[Gg]roup_?[Nn]orm|[Bb]atch_?[Nn]orm|[Ll]ayer_?[Nn]orm|weight_norm",
        C.NORM,
        "gpu_kernel_impl_nocast<GroupNormKernelImplInternal<float>(Tensor)::{lambda(float)#2}>",
        "pointwise stage of a norm: the functor tells",
    ),
    _rule(
        "copy",
        r"^\S*(?:CatArrayBatchedCopy|batch_transpose|roll_cuda|reflection_pad|replication_pad"
        r"|flip_cuda|flip_apply|constant_pad|split_with_sizes_copy|chunk_cat|copy_device_to_device"
        r"|unfold|padded_to_|to_padded|add_padding|remove_padding|jagged_\w*(?:dense|padded))",
        C.COPY,
        "void at::native::CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 4>(char*, Meta)",
        "concatenation, padding, layout moves",
    ),
    _wrapped(
        "fill_functor",
        r"\bFillFunctor|(?<!masked_)fill_kernel|arange_cuda|linspace_cuda|logspace_cuda"
        r"|range_cuda|eye_",
        C.FILL,
        "FillFunctor<float>, std::array<char *, 1ul>",
        "constant fills and ranges",
    ),
    _wrapped(
        "copy_functor",
        r"\w*copy_kernel|CopyFunctor|real_kernel|view_as_|flip_kernel"
        r"|copy_device_to_device|direct_copy",
        C.COPY,
        "bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]",
        "casts and strided copies run through the elementwise wrapper",
    ),
    _wrapped(
        "index_functor",
        r"gpu_index_kernel|index_(?:kernel|put|fill|copy|add)|take_|put_kernel|masked_scatter"
        r"|bucketize",
        C.INDEX,
        "gpu_index_kernel<index_put_kernel_impl<OpaqueType<4> >(TensorIterator&)>",
        "advanced indexing",
    ),
    _wrapped(
        "random_functor",
        r"distribution_|philox|bernoulli|random_|normal_kernel|uniform_kernel",
        C.RANDOM,
        "bernoulli_tensor_cuda_kernel<float, float>(TensorBase const&)",
        "generators through the elementwise wrapper",
    ),
    _rule(
        "conv",
        r"^\S*(?:conv_?(?:depthwise|transpose|olution)|im2col|col2im|vol2col|col2vol"
        r"|ConvolutionTBC)",
        C.CONV,
        "void at::native::conv_depthwise2d_forward_kernel<1, float, int>(Accessor<float>, int)",
        "convolutions of PyTorch's own",
    ),
    _rule(
        "pooling",
        r"^\S*(?:(?i:pool)|(?:atomic_)?adaptive|atomic_adapt)",
        C.REDUCTION,
        "void at::native::max_pool_forward_nchw<float>(int, float const*, long, float*)",
        "pooling is a windowed reduction",
    ),
    _rule(
        "reduce",
        r"^\S*(?:(?:^|::)reduce_kernel|segment_reduce|cunn_\w*[Rr]eduction|min_max_kernel|aminmax)"
        r"|^\S*cdist",
        C.REDUCTION,
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>(T3)",
        "sum, mean, max, norm of a tensor",
    ),
    _rule(
        "gemm",
        r"^\S*(?:int\d\w*_mm|tinygemm|weight_int\d|scaled_mm|grouped_mm|_mm_kernel|mm_out_wrapper)",
        C.GEMM,
        "void at::native::tinygemm_m16n8k16_chunk_kernel<at::native::ALayout_RM<0>, 8, 8>(void*)",
        "PyTorch's own small and quantised products",
    ),
    _rule(
        "elementwise",
        r"^\S*(?:(?:vectorized|unrolled|legacy|parallel|index)?_?elementwise_kernel\w*|dropou"
        r"|triu_tril|transform_bias|upsample|interpolate|(?:lstm|gru)_cell|rrelu|prelu|glu_"
        r"|grid_sampler|pixel_shuffle|rotary)",
        C.ELEMENTWISE,
        "void at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add<float>>(int)",
        "every other functor of the elementwise wrapper, masks, dropout, interpolation",
    ),
    _rule(
        "other",
        r"^\S*(?:_assert_async|spin_kernel|fft|linalg_|lu_|cholesky)",
        C.OTHER,
        "at::native::_assert_async_cuda_kernel(float const*)",
        "recognised and none of the classes",
    ),
)
"""Tried where the name is PyTorch's own (or bears one of its kernels' names without namespace)."""
