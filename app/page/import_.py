"""Take my files."""

import streamlit as st

from app.ui import import_view

st.title("Import")
st.caption(
    "Nsight Systems `.nsys-rep` or `.sqlite`, Nsight Compute `.ncu-rep` or CSV, PyTorch profiler "
    "traces, memory snapshots, latency tables. Several files make one run."
)
uploaded = st.file_uploader(
    "Files of one run",
    accept_multiple_files=True,
    key="files",
    help="Files over 200 MB: `./warpboard import PATH` on the dashboard's host.",
)
left, right = st.columns(2)
name = left.text_input("Name", key="name", placeholder="from the first file")
described = right.text_input(
    "What it measured", key="set", placeholder="workload=decode compile=none dtype=bf16"
)
keep_private = st.checkbox(
    "Keep private fields",
    key="keep_private",
    help="Host name, user, paths, environment and serials are removed otherwise.",
)
if st.button("Import", type="primary", icon=":material/upload_file:", disabled=not uploaded):
    import_view.take(uploaded, name, described, keep_private)
import_view.result()
