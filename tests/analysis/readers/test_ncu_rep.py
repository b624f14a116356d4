"""A .ncu-rep gives what its own CSV export gives; a damaged one never reaches native code."""

from pathlib import Path

import numpy as np
import pytest

from analysis.readers import read
from analysis.readers.ncu import report as ncu_rep
from core.errors import CaptureError

NCU = Path(__file__).resolve().parents[2] / "data" / "h100" / "ncu"
REPORT = NCU / "decode_max_autotune.ncu-rep"


def test_report_equals_its_raw_page() -> None:
    pytest.importorskip("ncu_report")
    ours, raw = read(REPORT), read(NCU / "decode_max_autotune.raw.csv")
    columns = ["duration_ns", "sm_pct", "memory_pct", "dram_pct", "l2_pct", "occupancy_pct"]
    for column in [*columns, "dram_bytes", "flops", "peak_flops_per_s"]:
        np.testing.assert_allclose(ours.counters[column], raw.counters[column], rtol=2e-5)
    for column in ("short_name", "grid", "block", "registers", "path"):
        assert ours.counters[column].tolist() == raw.counters[column].tolist()
    assert ours.gpu == raw.gpu
    assert ours.tool_version == "2025.3.1.0"
    assert ours.rules["estimated_speedup_pct"].notna().any()


def test_cut_report_is_refused_with_the_place(tmp_path: Path) -> None:
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(REPORT.read_bytes()[:1_400_000])
    with pytest.raises(CaptureError, match=r"cut\.ncu-rep: the report is cut off.*at byte \d+"):
        read(cut)


def test_without_a_reader_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_rep, "find_spec", lambda name: None)
    monkeypatch.setattr(ncu_rep, "find_ncu", lambda: None)
    with pytest.raises(CaptureError, match="pip install ncu-report"):
        read(REPORT)


def test_ncu_itself_is_the_second_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ncu"
    tool.write_text(f"#!/bin/sh\ncat {NCU / 'decode_max_autotune.raw.csv'}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(ncu_rep, "find_spec", lambda name: None)
    monkeypatch.setattr(ncu_rep, "find_ncu", lambda: str(tool))
    tables = read(REPORT)
    assert len(tables.counters) == 10
    assert "rules_not_read" in {w.code for w in tables.warnings}
