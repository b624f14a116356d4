"""The kernels for Hopper compile without a GPU, with products in flight during the exponentials."""

import re

import pytest


@pytest.mark.parametrize(("head_dim", "is_causal", "parts"), [(128, True, 2), (64, False, 3)])
def test_a_product_is_left_in_flight_by_one_wait_of_each_warpgroup(head_dim, is_causal, parts):
    pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    from workloads.kernels.attention import forward_hopper as hopper

    kernel = hopper.attention_forward_hopper
    fixed = {
        "CAUSAL": is_causal, "PARTS": parts, "STAGES": hopper.STAGES, "GROUP": hopper.GROUP,
        "REGISTERS": hopper._REGISTERS[parts],
    }  # fmt: skip
    rows = {"q_in": 64, "k_in": 128, "v_in": 128, "out": 64}
    scalars = {"lse": "*fp32", "scale": "fp32", "N": "i32"}
    scalars |= {"num_tiles": "i32", "num_heads": "i32"}
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
    assert waits.count("1") == parts
    assert compiled.metadata.shared <= 227 * 1024


@pytest.mark.parametrize(
    ("head_dim", "is_causal", "dtype"),
    [(128, False, "fp16"), (128, True, "fp16"), (64, False, "bf16")],
)
def test_the_backward_adds_four_values_at_once_with_a_product_in_flight(head_dim, is_causal, dtype):
    pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    from workloads.kernels.attention import backward_hopper as hopper

    kernel = hopper.attention_backward_hopper
    queries = hopper._queries(head_dim)
    rows = {"q_in": queries, "k_in": 64, "v_in": 64, "do_in": queries, "dk_out": 64, "dv_out": 64}
    gl = hopper.gl
    kind = gl.float16 if dtype == "fp16" else gl.bfloat16
    layouts = {
        name: gl.NVMMASharedLayout.get_default_for([r, head_dim], kind) for name, r in rows.items()
    }
    flat = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    kinds = {
        **{n: f"tensordesc<{dtype}[{r},{head_dim}],{layouts[n]!r}>" for n, r in rows.items()},
        **{n: f"tensordesc<fp32[1,{queries}],{flat!r}>" for n in ("lse_in", "delta_in")},
        "dq_sum": "*fp32", "scale": "fp32", "N": "i32",
    }  # fmt: skip
    fixed = {
        "CAUSAL": is_causal, "STAGES": hopper.STAGES, "REGISTERS": 240,
        "LATE": is_causal or head_dim == 64, "ROUNDED": not is_causal,
    }  # fmt: skip
    signature = {name: kinds.get(name, "constexpr") for name in kernel.arg_names}
    constants = {(kernel.arg_names.index(name),): value for name, value in fixed.items()}
    source = GluonASTSource(kernel, signature, constants, {})

    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})

    ptx = compiled.asm["ptx"]
    waits = re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", ptx)
    assert waits.count("1") == 2
    assert ptx.count("red.relaxed.gpu.global.add.v4.f32") == 2 * 2 * 8
    assert "cvt.rn.bf16.f32" not in ptx  # one number each, at a quarter of the rate of two
    assert compiled.metadata.shared <= 227 * 1024


def test_the_sums_of_dq_lie_where_the_last_kernel_reads_them():
    """The place of (row, column) in a tile, and the tile's shape as `finish_dq` takes it apart."""
    numpy = pytest.importorskip("numpy")
    r, c = numpy.mgrid[0:64, 0:64]
    thread = (c // 8 * 4 + r // 16) * 32 + r % 8 * 4 + c % 8 // 2
    place = thread * 4 + r % 16 // 8 * 2 + c % 2

    taken_apart = numpy.arange(4096).reshape(8, 4, 8, 4, 2, 2).transpose(1, 4, 2, 0, 3, 5)

    assert (taken_apart.reshape(64, 64) == place).all()
