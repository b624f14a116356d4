"""ncu's source page: the instructions at which warps were seen most, of each launch."""

from pathlib import Path

import pytest

from analysis.readers import detect
from analysis.readers.ncu.details import MOST, read_ncu_source
from captures.kinds import CaptureKind
from core.errors import CaptureError

HEADER = (
    '"#","Source","Address","Warp Stall Sampling (All Samples)","Instructions Executed",'
    '"stall_barrier","stall_long_sb"\n'
)


def page(tmp_path: Path, *tables: tuple[str, list[str]]) -> Path:
    path = tmp_path / "source.csv"
    path.write_text(
        "".join(f'"Kernel Name","{name}"\n{HEADER}' + "".join(rows) for name, rows in tables)
    )
    return path


def test_instructions_come_by_samples_with_their_share_and_reason(tmp_path: Path) -> None:
    path = page(
        tmp_path,
        ("gemm<1>(int)", [
            '"1","LDG.E R2, [R2.64]","0x10","1,000","64","900","100"\n',
            '"2","FFMA R4, R2, R3, R4","0x20","3,000","128","0","2,900"\n',
            '"3","EXIT","0x30","0","1","0","0"\n',
        ]),
        ("norm", ['"1","BAR.SYNC","0x10","5","2","5","0"\n']),
    )  # fmt: skip

    found = read_ncu_source(path).counter_sources

    assert found is not None
    assert found[["launch", "kernel", "line", "samples", "stall"]].values.tolist() == [
        [0, "gemm<1>(int)", 2, 3000.0, "long sb"],
        [0, "gemm<1>(int)", 1, 1000.0, "barrier"],
        [1, "norm", 1, 5.0, "barrier"],
    ]
    assert found["share_frac"].tolist() == [0.75, 0.25, 1.0]
    assert found["executed"].tolist() == [128.0, 64.0, 2.0]


def test_a_long_kernel_keeps_its_most_sampled_with_shares_of_all(tmp_path: Path) -> None:
    rows = [f'"{n}","NOP","0x0","{n}","1","0","0"\n' for n in range(1, 201)]

    found = read_ncu_source(page(tmp_path, ("k", rows))).counter_sources

    assert found is not None
    assert found["line"].tolist() == list(range(200, 200 - MOST, -1))
    assert found["share_frac"].iloc[0] == pytest.approx(200 / sum(range(1, 201)))


def test_page_is_told_by_its_content_and_one_without_samples_is_refused(tmp_path: Path) -> None:
    path = page(tmp_path, ("k", ['"1","NOP","0x0","0","0","0","0"\n']))

    assert detect(path) is CaptureKind.NCU_SOURCE
    with pytest.raises(CaptureError, match="source page"):
        read_ncu_source(path)
