"""What should run, and where?"""

import streamlit as st

from app.ui import submit_form, submit_plan, submit_values
from app.ui.widgets import said_plainly

st.title("Submit")
with said_plainly():
    submit_values.restore(st.query_params.get("from", ""))
    left, right = st.columns(2, gap="medium")
    with left:
        workload = submit_form.choose_workload()
    submit_values.recall(workload)
    with right:
        gpus = submit_form.choose_gpus()
    submit_values.note(workload)
    if workload.name == submit_form.OWN:
        values = submit_form.own_program_fields(workload, gpus)
    else:
        values = submit_form.fields(workload, gpus)
    profilers, repeats = submit_form.passes(gpus)
    tools = submit_form.tools(profilers)
    submit_values.keep()
    plan = submit_plan.make_plan(workload, values, gpus, profilers, repeats, tools)
submit_plan.draw(plan)
