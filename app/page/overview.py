"""What is here, and what is running?"""

import streamlit as st

from app.ui import cached, data, overview_view
from db import status

st.title("Overview")
overview_view.worker_environment()
overview_view.disk()
newest, total = data.list_runs(limit=10)
if total == 0:
    overview_view.first_steps()
    st.stop()
gpus, queue = data.list_gpus(), cached.read(status.queue)
overview_view.summary(total, gpus, queue)
overview_view.running(queue)
fill_experiments = overview_view.questions()
overview_view.against_baselines()
overview_view.gpus(gpus)
overview_view.newest(newest, total)
fill_experiments()
