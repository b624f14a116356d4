"""The definitions of all numbers, and the colours and examples of the kernel classes."""

import streamlit as st

from analysis.classify import categories, origins
from analysis.colours import category_colour, origin_colour
from analysis.definitions import DEFINITIONS, Definition
from app.ui import style
from core.plain_text import escape


def numbers(query: str) -> None:
    """List the numbers whose definition holds every word of the query."""
    words = query.lower().split()
    matching = [d for d in DEFINITIONS.values() if all(w in _text(d).lower() for w in words)]
    if not matching:
        style.empty_state("No definition contains these words", "Search for a part of the name.")
        return
    for group, title in _GROUPS.items():
        part = [d for d in matching if _group(d) == group]
        if not part:
            continue
        st.subheader(title, anchor=False)
        st.html(f'<div class="wb-terms">{"".join(map(_term, part))}</div>')


_GROUPS = {
    "": "A run",
    "latency_ms": "Latency",
    "kernels": "Kernels",
    "phases": "Phases",
    "api_calls": "Host calls",
    "transfers": "Transfers",
    "gaps": "Idle time",
    "memory": "Memory",
    "counters": "Hardware counters",
}


def _group(definition: Definition) -> str:
    """Return the table that a number belongs to, empty for one of the run itself."""
    table = definition.key.partition(".")[0]
    known = {"latency_ms": "latency_ms", "memory_points": "memory", "memory_at_peak": "memory"}
    known |= {"rules": "counters"}
    return known.get(table) or (table if "." in definition.key and table in _GROUPS else "")


def _term(definition: Definition) -> str:
    unit = f' <span class="wb-muted">{escape(definition.unit)}</span>' if definition.unit else ""
    return (
        f"<div><b>{escape(definition.label)}</b>{unit}<p>{escape(definition.meaning)}</p>"
        f"<p><code>{escape(definition.formula)}</code></p>"
        f'<p class="wb-muted">{escape(definition.obtained)} \u00b7 '
        f"<code>{escape(definition.key)}</code></p></div>"
    )


def _text(definition: Definition) -> str:
    parts = ("key", "label", "meaning", "formula", "obtained")
    return " ".join(str(getattr(definition, p)) for p in parts)


def classes() -> None:
    """Draw the colour of each kernel class and origin."""
    st.subheader("Kernel classes", anchor=False)
    st.caption(
        "A kernel has one category (what it computes) and one origin (whose "
        "code it is). Both come from its name, since most captures have nothing "
        "else; the share of time that no rule recognises is always shown."
    )
    st.html(_swatches([(str(c), category_colour(str(c))) for c in categories]))
    st.subheader("Origins", anchor=False)
    st.html(_swatches([(str(o), origin_colour(str(o))) for o in origins]))


def _swatches(items: list[tuple[str, str]]) -> str:
    cells = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in items
    )
    return f'<div class="wb-legend">{cells}</div>'
