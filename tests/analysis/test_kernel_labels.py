"""Labels tell kernels apart that share a wrapper, and keep the end of a long name."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from analysis.classify import cut_middle, distinct_labels, label

OPERATORS = Path(__file__).parent.parent / "data" / "kernel_names_operators.tsv"
PUBLIC = Path(__file__).parent.parent / "data" / "public"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
            "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
            "vectorized_elementwise_kernel <Fill, f32>",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, "
            "at::native::MeanOps<c10::BFloat16, float> > >(T3)",
            "reduce_kernel <Mean, bf16>",
        ),
        (
            "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(P)",
            "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
            "at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
            "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4> >(int)",
            "multi_tensor_apply_kernel <FusedAdamMath, f32>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl"
            "(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)",
            "vectorized_elementwise_kernel <Gelu, bf16>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
            "launch_clamp_scalar(at::TensorIteratorBase&)::{lambda(float)#1}>(int)",
            "vectorized_elementwise_kernel <clamp_scalar, f32>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<long>>(int)",
            "vectorized_elementwise_kernel <Fill, i64>",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<int>>>(int)",
            "FlashAttnFwdSm90",
        ),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1"
            "_cga1x1x1_kernel0_0",
            "cudnn_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1",
        ),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
            "_bias_gelu_execute_segment_k_off_kernel__5x_cublas",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_128x128x64_bias_gelu",
        ),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_LDSB1_AFC1",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV MT32x32x256 MI16x16x1",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("", ""),
    ],
)
def test_a_label_says_what_a_wrapper_runs(name, expected):
    assert label(name) == expected


def test_names_that_differ_in_the_middle_or_at_the_end_get_different_labels():
    base = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{}_warpgroupsize1x1x1_bias_gelu"
    names = [base.format(tile) for tile in ("128x128x64", "128x256x64", "256x128x64", "64x64x64")]

    labels = distinct_labels(names, 44)

    assert len(set(labels.values())) == 4
    assert all("x" in text and len(text) <= 60 for text in labels.values())


def test_kernels_that_differ_in_their_type_or_size_say_which():
    dropout = "void at::native::fused_dropout_kernel_vec<{}, float, unsigned int, 1, 4>(int)"
    softmax = "void (anonymous namespace)::softmax_warp_forward<float, float, float, {}, false>(T2)"

    of_types = distinct_labels([dropout.format(t) for t in ("c10::BFloat16", "float")])
    of_sizes = distinct_labels([softmax.format(size) for size in (9, 10)])

    assert [*of_types.values()] == [f"fused_dropout_kernel_vec ({t})" for t in ("bf16", "f32")]
    assert [*of_sizes.values()] == [f"softmax_warp_forward ({size})" for size in (9, 10)]


def test_a_part_of_a_long_word_that_differs_stands_for_it():
    name = "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKv{}P16VarSeqQ128Kv128PersistentContext"

    labels = distinct_labels([name.format(mask) for mask in ("Causal", "SlidingOrChunkedCausal")])

    assert [text[-9:] for text in labels.values()] == [" (Causal)", "(Sliding)"]
    assert max(map(len, labels.values())) <= 64


def test_every_kernel_of_many_operators_has_a_label_of_its_own():
    with OPERATORS.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = [row["name"] for row in rows]

    labels = distinct_labels(names)

    assert len(set(labels.values())) >= 0.98 * len(names)


AITER = (
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16E{}ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_iib"
)
XMMA = "sm80_xmma_gemm_f32f32_f32f32_f32_{}_n_tilesize{}x64x8_stage3_warpsize1x4x1_ffma_aligna4"
FUNCTOR = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnOther_add<{0}>,"
    " at::detail::Array<char*, 2> >(int, at::native::CUDAFunctorOnOther_add<{0}>)"
)
LAMBDA = (
    "void at::native::elementwise_kernel<128, 4, at::native::GroupNormBackwardKernelImpl<float>"
    "(at::Tensor const&, at::Tensor const&, long, long){{lambda({})#{}}}>(at::TensorIteratorBase&)"
)
CAST = "void cuda::per_channel_cast_and_transpose<256, {}>(void const*, float const*)"


@pytest.mark.parametrize(
    "names",
    [
        [AITER.format("Lb0"), AITER.format("Lb1")],
        [XMMA.format(layout, tile) for layout in ("nt", "tn") for tile in (64, 128)],
        [FUNCTOR.format("double"), FUNCTOR.format("float")],
        [LAMBDA.format(*x) for x in (("float", 1), ("float, float", 1), ("float, float", 2))],
        [CAST.format("false, true, false"), CAST.format("true, false, false")],
    ],
    ids=["mangled", "two axes", "type at the end", "argument more", "same words"],
)
@pytest.mark.parametrize("max_chars", [30, 64])
def test_two_kernels_of_one_capture_never_read_alike(names: list[str], max_chars: int) -> None:
    labels = distinct_labels(["triton_poi_fused_add_0", *names], max_chars)

    assert len(set(labels.values())) == len(names) + 1


@pytest.mark.parametrize("path", sorted(PUBLIC.glob("*.trace.json.gz")), ids=lambda p: p.name)
def test_all_kernels_of_a_published_trace_have_labels_of_their_own(path: Path) -> None:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = sorted({e["name"] for e in events if e.get("cat") == "kernel"})

    labels = distinct_labels(names, 30)

    assert len(set(labels.values())) == len(names)


def test_cutting_keeps_begin_and_end():
    assert cut_middle("abcdefghij", 10) == "abcdefghij"
    assert cut_middle("abcdefghijklmnop", 9) == "abcde\u2026nop"
