"""The forward for Hopper compiles without a GPU, with its products in flight during the softmax."""

import re

import pytest


@pytest.mark.parametrize(("head_dim", "is_causal"), [(128, True), (64, False)])
def test_a_product_is_left_in_flight_by_one_wait_of_each_warpgroup(head_dim, is_causal):
    pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    from workloads.kernels import attention_forward_hopper as hopper

    kernel = hopper.attention_forward_hopper
    fixed = {"CAUSAL": is_causal, "STAGES": hopper.STAGES, "GROUP": hopper.GROUP, "REGISTERS": 240}
    rows = {"q_in": 64, "k_in": 128, "v_in": 128, "out": 64}
    scalars = {"lse": "*fp32", "scale": "fp32", "num_blocks": "i32", "num_heads": "i32"}
    layouts = {
        name: hopper.gl.NVMMASharedLayout.get_default_for([r, head_dim], hopper.gl.float16)
        for name, r in rows.items()
    }
    descriptors = {
        name: f"tensordesc<fp16[{r},{head_dim}],{layouts[name]!r}>" for name, r in rows.items()
    }
    kinds = {**descriptors, **scalars}
    signature = {name: kinds.get(name, "constexpr") for name in kernel.arg_names}
    constants = {(kernel.arg_names.index(name),): value for name, value in fixed.items()}
    source = GluonASTSource(kernel, signature, constants, {})

    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})

    waits = re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", compiled.asm["ptx"])
    assert waits.count("1") == 2
    assert compiled.metadata.shared <= 227 * 1024
