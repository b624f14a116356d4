"""Which stack of a flame graph is open, and which kernels the reader chose by it."""

from collections.abc import Sequence

import streamlit as st

from analysis.runview import RunView
from app.charts.flame import TOP, Tree
from app.ui.format import percent
from app.ui.widgets import plain_markdown

_MOST_OFFERED = 200
_NAME_CHARS = 70


def open_stack(tree: Tree, place: str) -> int:
    """Draw the choice of a stack, for who uses no pointer, and return the box that is open."""
    key = f"stack_{place}"
    total = tree.boxes["total_ns"]
    widest = total.drop(TOP).nlargest(_MOST_OFFERED).index
    offered = [TOP, *sorted((int(n) for n in widest), key=lambda n: -float(total[n]))]
    asked = st.session_state.pop(f"asked_{place}", st.session_state.get(key, TOP))
    if asked not in tree.boxes.index:
        asked = TOP
    if asked not in offered:
        offered.append(int(asked))
    st.session_state[key] = asked
    whole = float(total[TOP]) or 1.0

    def told(node: int) -> str:
        name = str(tree.boxes.at[node, "name"])
        share = f"{percent(float(total[node]) / whole)}  " if node != TOP else ""
        return f"{share}{name[:_NAME_CHARS]}"

    return int(st.selectbox("Open stack", offered, format_func=told, key=key))


def click(tree: Tree, place: str, box: int, root: int) -> None:
    """Open the box that was clicked and draw anew; the one that is open leads back to the one over
    it.
    """
    if box not in tree.boxes.index:
        return
    opened = tree.path(box)[-2] if box == root and box != TOP else box
    if opened != root:
        st.session_state[f"asked_{place}"] = opened
        st.rerun()


def keep_kernels(view: RunView, label: str, names: Sequence[str]) -> None:
    """Keep kernels chosen for the tables and the timeline of a run; none: all."""
    if names:
        st.session_state[_key(view)] = (label, tuple(names))
    else:
        st.session_state.pop(_key(view), None)


def kept_kernels(view: RunView) -> frozenset[str]:
    """Return the chosen kernels, with a line that says so and leads back to all; empty for all."""
    label, names = st.session_state.get(_key(view), ("", ()))
    if not names:
        return frozenset()
    note, back = st.columns([5, 1], vertical_alignment="center")
    note.caption(plain_markdown(f"Only kernels under {label}, chosen in Stacks."))
    if back.button("Show all kernels", key=f"all_{_key(view)}", type="tertiary"):
        st.session_state.pop(_key(view), None)
        for key in [k for k in st.session_state if str(k).startswith(f"stack_{view.run.id}_")]:
            del st.session_state[key]
        st.rerun()
    return frozenset(names)


def _key(view: RunView) -> str:
    return f"kernels_of_stack_{view.run.id}"
