"""One kernel of a run: its whole name, and the operators and phases that launched it."""

from typing import Any

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.ui import data, style
from app.ui.format import count, duration, percent
from app.ui.widgets import plain_markdown

_KERNEL, _OPERATOR = "open_kernel", "open_operator"
_MOST_LINKS = 6


def open_kernel(kernels: pd.DataFrame) -> pd.Series:
    """Say for each row whether a link on the page asked for its kernel."""
    return kernels["name"] == st.session_state.get(_KERNEL, "")


def open_operator(operators: pd.DataFrame) -> pd.Series:
    """Say for each row whether a link on the page asked for its operator."""
    name, pass_name = st.session_state.get(_OPERATOR, ("", ""))
    return (operators["name"] == name) & (operators["pass"] == pass_name)


def _go(tab: str, key: str, value: Any) -> None:
    st.session_state["tab"], st.session_state[key] = tab, value


def kernel_link(name: str, label: str, key: str) -> None:
    """Draw a link to a kernel in the table of kernels."""
    icon = ":material/arrow_forward:"
    st.button(
        label, key=key, type="tertiary", icon=icon, on_click=_go, args=("Kernels", _KERNEL, name)
    )


def kernel_detail(view: RunView, kernel: pd.Series) -> None:
    """Draw the whole name of a kernel, to copy, and who launched it, with links."""
    name = str(kernel["name"])
    st.code(name, language=None, wrap_lines=True)
    every = view.kernels[view.kernels["name"] == name]
    sums = f"{count(every['count'].sum())}, {duration(every['total_ns'].sum())}"
    facts = [
        ("class", f"{kernel['category']}, {kernel['origin']}, by rule {kernel['rule']}"),
        ("whole capture", f"{sums} in launches of every shape"),
    ]
    phases, _ = data.fetch_phase_kernels(view)
    own = phases[(phases["name"] == name) & (phases["phase"] != "")]
    if len(own):
        whole = float(own["total_ns"].sum()) or 1.0
        phase_links = [
            f"{p} {percent(t / whole)}" for p, t in zip(own["phase"], own["total_ns"], strict=True)
        ]
        facts.append(("phases", ", ".join(phase_links[:_MOST_LINKS])))
    style.facts(facts)
    _operators(view, name)


def _operators(view: RunView, name: str) -> None:
    links = view.by_step.operator_kernels
    if not len(links):
        return
    mine = links[links["kernel"] == name].sort_values("total_ns", ascending=False)
    if mine.empty:
        st.caption("It was not launched by an operator.")
        return
    whole = float(mine["total_ns"].sum()) or 1.0
    st.caption("Launched by")
    with st.container(horizontal=True):
        for row in mine.head(_MOST_LINKS).to_dict("records"):
            label = f"{row['name']}, {row['pass']} ({percent(row['total_ns'] / whole)})"
            st.button(
                plain_markdown(label),
                key=f"operator_of_{row['name']}_{row['pass']}",
                type="tertiary",
                icon=":material/arrow_forward:",
                on_click=_go,
                args=("Operators", _OPERATOR, (row["name"], row["pass"])),
            )
