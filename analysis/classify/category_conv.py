"""Category rules for convolutions and for what cuDNN and MIOpen run round them."""

from analysis.classify.category_library import library_rule
from analysis.classify.classes import Category as C
from analysis.classify.rule import Field as F

CONV_RULES = (
    library_rule(
        "conv.norm_in_cudnn",
        F.TEXT,
        r"cudnn.*(?:::|_)(?:bn_|batch_?norm|norm_)|\bbn_[fb]w_|[Bb]atchNorm|nhwc_batch_norm",
        C.NORM,
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)",
        "cuDNN's batch norm; checked before its convolutions",
    ),
    library_rule(
        "conv.layout_in_cudnn",
        F.HEAD,
        r"(?i)tensorTransform|nhwcToNchw|nchwToNhwc|nhwc_?to_?nchw|nchw_?to_?nhwc|nhwcTofolded"
        r"|addPadding|NhwcToFolded|convertTensor_|tensor_?layout",
        C.COPY,
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(cudnn::params_t)",
        "layout moves round a convolution",
    ),
    library_rule(
        "conv.pool_in_cudnn",
        F.HEAD,
        r"cudnn.*pooling|pooling_[fb]w",
        C.REDUCTION,
        "void cudnn::ops::pooling_fw_4d_kernel<float, float, cudnn::maxpooling_func<float> >(int)",
        "pooling is a windowed reduction",
    ),
    library_rule(
        "conv.fill_in_cudnn",
        F.HEAD,
        r"cudnn.*setTensor",
        C.FILL,
        "void cudnn::ops::setTensor4d_kernel<float>(float*, cudnnTensorStruct, float)",
        "cuDNN's constant fill",
    ),
    library_rule(
        "conv.pointwise_in_cudnn",
        F.HEAD,
        r"scalePackedTensor|op_tensor_kernel|OpTensor|op_generic_tensor|cudnn.*(?:activation"
        r"|scalar?Prod|[Aa]dd[Tt]ensor)"
        r"|(?:LSTM|GRU|RNN)_elementWise|RNN.*elementwise",
        C.ELEMENTWISE,
        "void op_generic_tensor_kernel<3, float, float, float, 256, (cudnnGenericOp_t)0>(int)",
        "cuDNN's pointwise tensor operations and RNN gates",
    ),
    library_rule(
        "conv.softmax_in_cudnn",
        F.HEAD,
        r"cudnn.*softmax|softmax_[fb]w_\w*cudnn",
        C.SOFTMAX,
        "void cudnn::ops::softmax_fw_small_kernel<2, float, float, 256, 1>(cudnnTensorStruct)",
        "cuDNN's softmax",
    ),
    library_rule(
        "conv.xmma",
        F.TEXT,
        r"(?:fprop|dgrad|wgrad|[Cc]onv(?:olution|2d|3d))\w*_(?:implicit|indexed|optimized|analytic"
        r"|warp_specialized|direct)|s\d+(?:fprop|dgrad|wgrad)|implicit_(?:convolve|gemm)"
        r"|xmma_(?:\w+_)?(?:fprop|dgrad|wgrad)|cutlass::conv::|ImplicitGemmConvolution",
        C.CONV,
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
        "implicit-GEMM convolution: gemm in the name, forward and gradients of a convolution",
    ),
    library_rule(
        "conv.cudnn",
        F.TEXT,
        r"(?<![a-z])[dhisc]\d*cudnn_|cutlass_\w*cudnn\w*::Kernel|cudnn::(?:cnn|winograd"
        r"|detail::(?:implicit|explicit|wgrad"
        r"|dgrad|fft))|cudnn.*[Cc]onv"
        r"|winograd|conv2d_grouped|(?:dgrad|wgrad|fprop)2d_|first_layer_\w*kernel|convolve"
        r"|kern_precompute_indices|computeOffsetsKernel|computeBOffsets|computeWgrad\w*Offsets"
        r"|flip_filter|fft2d_[rc]2[rc]|im2col|col2im|vol2col|cudnn.*(?:fprop|dgrad|wgrad|xmma_conv)"
        r"|dgrad_engine|wgrad_alg|explicit_convolve|naive_conv|miopen\w*[Cc]onv|igemm_(?:fwd|bwd"
        r"|wrw)|^gfx\d+_f\dx\d"
        r"|grouped_conv|conv_depthwise",
        C.CONV,
        "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(cudnn::winograd::P)",
        "cuDNN, MIOpen and CK convolutions with their set-up, transform and reduction stages",
    ),
)
