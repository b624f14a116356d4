"""Where is my job?"""

import streamlit as st

from app.ui import cached, queue_view
from db import status

st.title("Queue")
if cached.read(status.queue).empty:
    queue_view.nothing_to_do()
else:
    queue_view.live()
queue_view.ended()
