"""A run's operators, the kernels of each, and its time by stack."""

import json
from typing import Any

import pandas as pd
import streamlit as st

from analysis.roofline import flops_peak
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.ui import style
from app.ui.kernel_detail import kernel_link, open_operator
from app.ui.tables import choose_row
from app.ui.widgets import plain_markdown


def operators(view: RunView) -> None:
    """Draw the table by operator; a chosen one shows its kernels."""
    frame = view.by_step.operators
    if not len(frame):
        style.empty_state(
            "No operators recorded",
            "This tab divides GPU time; the operators of a CPU run are in the first tab."
            if is_cpu_run(view)
            else "They come from a PyTorch trace, or from nsys with --pytorch=autograd-nvtx.",
        )
        return
    per_step = frame["step_count"].notna().any()
    scope = "A step"
    if per_step:
        scope = st.segmented_control(
            "Figures of", ["A step", "Whole capture"], default="A step", key="op_scope",
            required=True,
        )  # fmt: skip
    table = _operator_table(frame, view, per_step=per_step and scope == "A step")
    place = choose_row(
        table,
        key="operator_table",
        first=open_operator(frame),
        most_px=520,
        helps=_HELPS,
        alt="Operators by own kernel time",
    )
    _kernels_of(view, frame.iloc[place or 0])


def _operator_table(frame: pd.DataFrame, view: RunView, *, per_step: bool) -> pd.DataFrame:
    head = "step_" if per_step else ""
    total_ns = frame["total_kernel_ns"].astype(float)
    flops = frame["flops"].astype(float)
    rate = flops / total_ns.where(total_ns > 0)  # FLOP per ns is GFLOP/s
    peak = _best_peak(view)
    table = pd.DataFrame(
        {
            "operator": frame["name"],
            "pass": frame["pass"],
            "own kernel ms": frame[f"{head}self_kernel_ns"].astype(float) / 1e6,
            "kernel ms": frame[f"{head}total_kernel_ns"].astype(float) / 1e6,
            "launches": frame[f"{head}num_kernels"].astype(float),
            "calls": frame[f"{head}count"].astype(float),
            "host ms": frame[f"{head}host_ns"].astype(float) / 1e6,
            "TFLOP/s": rate / 1e3,
            "% of peak": 100 * rate * 1e9 / peak if peak else None,
            "backward of": frame["forward_name"],
            "under": frame["module"],
            "shapes": [_first_shape(s) for s in frame["shapes"]],
        }
    )
    unknown = [c for c in table.columns if table[c].isna().all()]
    return table.drop(columns=unknown)


def _best_peak(view: RunView) -> float | None:
    """Return the peak that matrix products are compared with: that of bf16."""
    peak = flops_peak(view.peaks, view.run.gpu_model, "bfloat16")
    return peak.value if peak else None


def _first_shape(text: Any) -> str | None:
    shapes = json.loads(text) if isinstance(text, str) else []
    return str(shapes[0]) if shapes else None


_HELPS = {
    "pass": "forward, backward (autograd nodes and what they call), optimizer, or other",
    "own kernel ms": "kernels launched by the operator itself",
    "kernel ms": "including those of the operators it calls",
    "TFLOP/s": "operations from the recorded shapes over kernel time",
    "% of peak": "share of this GPU's bf16 peak",
    "backward of": "the forward operator with the same sequence number",
    "under": "the module or Python function that accounts for most of its kernel time",
}


def _kernels_of(view: RunView, row: pd.Series) -> None:
    links = view.by_step.operator_kernels
    mine = links[(links["name"] == row["name"]) & (links["pass"] == row["pass"])]
    st.markdown(plain_markdown(f"Kernels of {row['name']}, {row['pass']}"))
    if mine.empty:
        st.caption("It launches no kernels itself; these belong to the operators it calls.")
        return
    shown = mine.merge(
        view.kernels[["name", "category"]].drop_duplicates("name"),
        left_on="kernel",
        right_on="name",
        how="left",
    )
    place = choose_row(
        pd.DataFrame(
            {
                "kernel": shown["kernel"],
                "category": shown["category"],
                "share of the operator %": 100
                * shown["total_ns"]
                / (float(shown["total_ns"].sum()) or 1.0),
                "total ms": shown["total_ns"] / 1e6,
                "launches": shown["count"],
            }
        ),
        key=f"kernels_of_{row['name']}_{row['pass']}",
        first=None,
        most_px=320,
        alt="Kernels that the chosen operator launched",
    )
    if place is not None:
        name = str(shown["kernel"].iloc[place])
        kernel_link(name, "Open this kernel in the table of kernels", key="kernel_of_operator")
