"""Take my files."""

import streamlit as st

from app.ui import import_view

st.title("Import")
st.caption(
    "Nsight Systems `.nsys-rep` or `.sqlite`, Nsight Compute `.ncu-rep` or CSV, "
    "PyTorch profiler traces, memory snapshots, latency tables. Several files "
    "can make one run or several."
)
import_view.form()
import_view.result()
