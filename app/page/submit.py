"""What should run, and where?"""

import streamlit as st

from app.ui.submit import form, plan, values
from app.ui.widgets import said_plainly

st.title("Submit")
with said_plainly():
    values.restore(st.query_params.get("from", ""))
    left, right = st.columns(2, gap="medium")
    with left:
        workload = form.choose_workload()
    values.recall(workload)
    with right:
        gpus = form.choose_gpus()
    values.note(workload)
    if workload.name == form.OWN:
        chosen = form.own_program_fields(workload, gpus)
    else:
        chosen = form.fields(workload, gpus)
    profilers, repeats = form.passes(gpus)
    tools = form.tools(profilers)
    values.keep()
    jobs = plan.make_plan(workload, chosen, gpus, profilers, repeats, tools)
plan.draw(jobs)
