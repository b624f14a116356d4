"""The definitions of all numbers, and the colours and examples of the kernel classes."""

from html import escape

import pandas as pd
import streamlit as st

from analysis.classify import categories, origins
from analysis.definitions import DEFINITIONS
from app.ui import style
from app.ui.colours import category_colour, origin_colour
from app.ui.widgets import show_table, table_height


def numbers(query: str) -> None:
    """List the numbers whose definition holds every word of the query."""
    words = query.lower().split()
    found = [d for d in DEFINITIONS.values() if all(w in _text(d).lower() for w in words)]
    if not found:
        style.empty_state("No definition holds these words", "Search for a part of the name.")
        return
    show_table(
        pd.DataFrame(
            {
                "number": [d.label for d in found],
                "unit": [d.unit for d in found],
                "meaning": [d.meaning for d in found],
                "formula": [d.formula for d in found],
                "from": [d.obtained for d in found],
                "key": [d.key for d in found],
            }
        ),
        height=table_height(found, 640),
        column_config={
            "number": st.column_config.TextColumn(width=170),
            "unit": st.column_config.TextColumn(width=70),
            "meaning": st.column_config.TextColumn(width=440),
            "formula": st.column_config.TextColumn(width=330),
            "from": st.column_config.TextColumn(width=230),
        },
        row_height=33,
        alt="Definitions of all numbers",
    )


def _text(definition: object) -> str:
    parts = ("key", "label", "meaning", "formula", "obtained")
    return " ".join(str(getattr(definition, p)) for p in parts)


def classes() -> None:
    """Draw the colour of each kernel class and origin."""
    st.subheader("Kernel classes", anchor=False)
    st.caption(
        "A kernel has one category (what it computes) and one origin (whose code it is). Names are "
        "all that most captures hold; the share that no rule recognises is always shown."
    )
    st.html(_swatches([(str(c), category_colour(str(c))) for c in categories]))
    st.subheader("Origins", anchor=False)
    st.html(_swatches([(str(o), origin_colour(str(o))) for o in origins]))


def _swatches(items: list[tuple[str, str]]) -> str:
    cells = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in items
    )
    return f'<div class="wb-legend">{cells}</div>'
