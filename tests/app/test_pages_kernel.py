"""A chosen kernel shows its whole name and what launched it; a search of stacks lists kernels."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.imports import import_paths
from core.config import data_dir


def detail_and_stacks(run_id: str) -> None:
    import streamlit as st

    from app.ui import data, kernel_detail
    from app.ui.run import operators

    view = data.fetch_view(run_id)
    kernel_detail.kernel_detail(view, view.kernels.iloc[0])
    st.session_state["flame_find"] = "optimizer"
    operators.stacks(view)


def test_a_kernel_names_its_launches_and_operators_and_stacks_their_kernels(
    tmp_path: Path, example_captures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(tmp_path))
    trace = example_captures / "train_bf16_small.trace.json"
    run_id = import_paths(data_dir(tmp_path), [trace], name="small").run_id
    at = AppTest.from_function(
        detail_and_stacks, default_timeout=60, kwargs={"run_id": run_id}
    ).run()

    assert not at.exception and not at.error
    assert any("(" in code.value for code in at.code)
    assert any("Kernels under these stacks" in text.value for text in at.markdown)
    assert len(at.dataframe) == 1 and len(at.dataframe[0].value) > 0
