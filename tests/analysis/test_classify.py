"""Labelled names, the rules' own examples, and names as tools tear them."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from analysis.classify import Category, Origin, classify, fractions, short_name
from analysis.classify.rule import built_in_rules

DATA = Path(__file__).parent.parent / "data"
LABELLED = DATA / "kernel_names.tsv"
MORE_LABELLED = DATA / "kernel_names_more.tsv"
OF_OPERATORS = DATA / "kernel_names_operators.tsv"
OF_ENGINES = DATA / "kernel_names_engines.tsv"
OF_DOMAINS = DATA / "kernel_names_domains.tsv"
OF_PROGRAMS = DATA / "kernel_names_programs.tsv"
OF_STRANGERS = DATA / "kernel_names_strangers.tsv"
LABELLED_SETS = (
    *(LABELLED, MORE_LABELLED, OF_OPERATORS, OF_ENGINES, OF_DOMAINS, OF_PROGRAMS),
    OF_STRANGERS,
)
CATEGORY_RULES = tuple(
    rule for group, rules in built_in_rules().items() if group != "origin" for rule in rules
)
ORIGIN_RULES = built_in_rules()["origin"]


def labelled(path: Path = LABELLED) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def share_right(field: str, path: Path = LABELLED) -> float:
    rows = labelled(path)
    right = [
        getattr(classify(r["name"]), field)
        in {r[field], *(r[f"{field}_also"] or r[field]).split("|")}
        for r in rows
    ]
    return sum(right) / len(rows)


@pytest.mark.parametrize("path", LABELLED_SETS, ids=lambda p: p.stem)
def test_labelled_names_get_their_category(path):
    assert share_right("category", path) >= (0.975 if path == OF_STRANGERS else 0.985)


@pytest.mark.parametrize("path", LABELLED_SETS, ids=lambda p: p.stem)
def test_labelled_names_get_their_origin(path):
    assert share_right("origin", path) >= 0.97


def test_the_labelled_sets_share_no_name_and_use_known_classes():
    rows = [row for path in LABELLED_SETS for row in labelled(path)]
    assert len({r["name"] for r in rows}) == len(rows)
    for r in rows:
        assert {r["category"], *filter(None, r["category_also"].split("|"))} <= set(Category)
        assert {r["origin"], *filter(None, r["origin_also"].split("|"))} <= set(Origin)


def test_there_are_far_fewer_rules_than_names():
    names = sum(len(labelled(path)) for path in LABELLED_SETS)
    assert len(CATEGORY_RULES) < names / 20


@pytest.mark.parametrize("rule", CATEGORY_RULES, ids=lambda r: r.id)
def test_every_category_rule_decides_its_own_example(rule):
    found = classify(rule.example)
    assert found.rule.split(" / ")[0] == rule.id
    assert found.category == rule.category


@pytest.mark.parametrize("rule", ORIGIN_RULES, ids=lambda r: r.id)
def test_every_origin_rule_decides_its_own_example(rule):
    found = classify(rule.example)
    assert found.rule.split(" / ")[1] == rule.id
    assert found.origin == rule.origin


def test_rule_ids_are_unique():
    ids = [r.id for r in CATEGORY_RULES + ORIGIN_RULES]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("name", "category", "origin"),
    [
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
         Category.FILL, Origin.ATEN),
        ("_ZN12_GLOBAL__N_120softmax_warp_forwardIfffLi8ELb0ELb0EEEvPT0_PKT_iiiPKbib",
         Category.SOFTMAX, Origin.ATEN),
        ("_Z10vector_addPKfS0_Pfi", Category.ELEMENTWISE, Origin.USER),
        ("std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __half, (b\u2026",
         Category.GEMV, Origin.CUBLAS),
        ("void at::native::<unnamed>::CatArrayBatchedCopy<T, (int)4>(char *, T2...",
         Category.COPY, Origin.ATEN),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
         Category.OTHER, Origin.ATEN),
        ("ConvolutionBackward0", Category.OTHER, Origin.ATEN),
        ("quantized::linear_dynamic", Category.GEMM, Origin.ATEN),
        ("qqqq_zzzz", Category.UNKNOWN, Origin.UNKNOWN),
        ("", Category.UNKNOWN, Origin.UNKNOWN),
        ("<<<((((", Category.UNKNOWN, Origin.USER),
    ],
)  # fmt: skip
def test_mangled_truncated_and_meaningless_names(name, category, origin):
    found = classify(name)
    assert (found.category, found.origin) == (category, origin)


@pytest.mark.parametrize(
    ("start", "category"),
    [
        ("vectorized_l", Category.NORM),
        ("GammaBetaBac", Category.NORM),
        ("cuComputeGra", Category.NORM),
        ("indexSelectL", Category.EMBEDDING),
        ("krn_partials", Category.EMBEDDING),
        ("softmax_warp", Category.SOFTMAX),
        ("distribution", Category.RANDOM),
        ("multi_tensor", Category.OPTIMIZER),
        ("CatArrayBatc", Category.COPY),
        ("adaptive_ave", Category.REDUCTION),
        ("write_indice", Category.INDEX),
        ("conv_depthwi", Category.CONV),
    ],
)
def test_a_name_that_a_table_cut_after_twelve_letters_keeps_its_class(start, category):
    found = classify(f"void at::native::(anonymous namespace)::{start}...")
    assert (found.category, found.origin) == (category, Origin.ATEN)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("_silu_mul_split_kernel", Category.ELEMENTWISE),
        ("splitk_reduce_kernel", Category.GEMM),
        ("block_all_reduce_sum_f32_kernel", Category.REDUCTION),
        ("spmv_csr_scalar_kernel", Category.OTHER),
        ("linearize_index_kernel", Category.INDEX),
        ("quantile_kernel", Category.INDEX),
        ("splitKQVOutputKernel", Category.COPY),
        ("FLASHRNNPointwiseForward", Category.ELEMENTWISE),
        ("prepare_group_gemm_arguments", Category.OTHER),
        ("PinholeFocalUpdateKernel", Category.OTHER),
        ("s2_attn_fwd_upsample_scatter_final_k", Category.ATTENTION),
        ("_gemma_rms_layernorm_forward", Category.NORM),
        ("convert_weights_for_mixed_gemm_kernel", Category.COPY),
        ("ln_bwd_finalize_kernel", Category.NORM),
        ("flashinfer_scale_kernel", Category.ELEMENTWISE),
        ("void cudnn::fusion::convert_dq_to_16bits<__nv_bfloat16, 128>(P)", Category.ATTENTION),
        ("void cudnn::fusion::compute_dot_do_o<true, __half, 128, 1>(P)", Category.ATTENTION),
        ("void syrk_kernel_val<float, 128>(cublasSyrkParams<float>)", Category.GEMM),
        ("void trtllm::low_latency_gemm::fp8_swapab_kernel<128, 16>(Params)", Category.GEMM),
        ("void deep_gemm::smxx_paged_mqa_logits_metadata<32u, 256u>(unsigned)", Category.OTHER),
        ("permute_pooled_embs_kernel", Category.INDEX),
        ("input_reduce_window_fusion", Category.REDUCTION),
        ("lookupKernel", Category.EMBEDDING),
        ("get_last_loc_kernel", Category.INDEX),
    ],
)
def test_a_word_inside_another_word_decides_nothing(name, category):
    assert classify(name).category == category


@pytest.mark.parametrize(
    "name", ["matmul_bwd_kernel", "softmax_kernel", "layernorm_fwd_kernel", "add_rows_gpu"]
)
def test_a_plain_name_that_any_project_may_use_is_called_hand_written(name):
    found = classify(name)
    assert found.origin is Origin.USER
    assert found.confidence <= 0.5


def test_unknown_has_no_confidence():
    assert classify("qqqq_zzzz").confidence == 0


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::X<a::b> >(int, T2)",
         "vectorized_elementwise_kernel"),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 3>(P<int>)",
         "gemvx::kernel"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)",
         "cutlass::Kernel2"),
        ("void foo<bar<int>, at::native::baz<", "foo"),
        ("nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT", "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT"),
        ("kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensorptrbf16gmem", "RMSNorm"),
        ("kernel_cutlass_elementwise_add_kernel_tensorptrf32gmemo16", "elementwise_add_kernel"),
        ("kernel_cutlass_kernel_TiledMMA_Thr", "kernel_cutlass_kernel_TiledMMA_Thr"),
        ("aten::mm", "aten::mm"),
        ("__omp_offloading_fd00_19e4120__Z4copyPdS__l12.kd", "copy_l12"),
        ("nvkernel_solve_F1L20_2_", "solve_l20"),
        ("sweep$solver_mod_$ck_L36_1_cce$noloop$form", "sweep_l36"),
        ("## Call CompiledFxGraph fbkyoz2yjldl4bixyvcq25ktyj ##", "CompiledFxGraph fbkyoz2y"),
        ("", ""),
    ],
)  # fmt: skip
def test_short_name_drops_arguments_and_namespaces(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("triton_red_fused_mm_t_view_11", Category.GEMV),
        ("triton_red_fused__to_copy__unsafe_view_add_mean_mm_mul_pow_rsqrt_10", Category.NORM),
        ("triton_poi_fused__unsafe_view_copy_mm_slice_transpose_view_2", Category.COPY),
    ],
)
def test_a_product_is_inside_a_generated_reduction_only_with_its_transpose(name, category):
    assert classify(name).category == category


def frame(*rows: tuple[str, int, bool]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["category", "total_ns", "is_opaque"])


def test_opaque_time_is_in_every_denominator_and_counts_as_not_recognised():
    found = fractions(
        frame(("gemm", 20, False), ("gemv", 10, False), ("attention", 10, False),
              ("unknown", 10, False), ("unknown", 50, True))
    )  # fmt: skip
    assert found["gemm_frac"] == 0.3
    assert found["attention_frac"] == 0.1
    assert found["unclassified_frac"] == 0.6
    assert found["category_total_ns"]["opaque"] == 50


def test_a_gemm_share_of_time_that_is_all_opaque_is_unknown_and_not_zero():
    found = fractions(frame(("opaque", 50, True)))
    assert found["unclassified_frac"] == 1.0
    assert "gemm_frac" not in found and "attention_frac" not in found


def test_no_time_gives_no_fraction():
    assert fractions(frame()) == {"category_total_ns": {}}
    assert "gemm_frac" not in fractions(frame(("gemm", 0, False)))


@pytest.mark.parametrize(
    "name",
    [
        "autograd::engine::evaluate_function: AddmmBackward0",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    ],
)
def test_steps_of_the_framework_keep_their_whole_name(name):
    assert short_name(name) == name
