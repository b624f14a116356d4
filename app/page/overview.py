"""What is here, and what is running?"""

import streamlit as st

from app.ui import data, overview_view

st.title("Overview")
overview_view.worker_environment()
newest, total = data.list_runs(limit=10)
if total == 0:
    overview_view.first_steps()
    st.stop()
overview_view.gpus(data.list_gpus())
overview_view.running()
overview_view.against_baselines()
overview_view.newest(newest, total)
