"""What can each GPU do?"""

import streamlit as st

from app.ui import cached, data, gpu_view, style
from db import status

st.title("GPUs")
frame = data.list_gpus()
if frame.empty:
    style.empty_state(
        "No GPU is registered",
        (
            "A worker registers its GPUs when it starts; imported captures "
            "name the GPU they were made on."
        ),
    )
gpu_view.cards(frame)
gpu_view.hosts(cached.read(status.workers))
gpu_view.how_to_add()
