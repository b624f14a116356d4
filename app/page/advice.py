"""How good are the predictions?"""

import streamlit as st

from app.ui.run.advice import score
from app.ui.widgets import said_plainly

st.title("Advice")
with said_plainly():
    score()
