"""Help with the filter of runs: terms to add under the box, and where an error is."""

from collections import Counter

import pandas as pd
import streamlit as st

from app.ui import data
from app.ui.shape import is_there
from app.ui.widgets import plain_markdown
from db.search import FIELDS, QuerySyntaxError

_MOST_HINTS = 9
_KEYS = ("workload", "gpu", "status", "compile", "dtype", "batch", "tag")
"""Offered while the box names no key, in this order."""


def hints(query: str) -> None:
    """Draw terms that can be added to the filter; one press puts it into the box."""
    frame, _ = data.list_runs(limit=100)
    if frame.empty:
        return
    offered = completions(query, frame)
    if offered:
        st.pills(
            "Add to the filter",
            offered,
            key="filter_hint",
            format_func=plain_markdown,
            on_change=_take,
            label_visibility="collapsed",
        )


def completions(query: str, frame: pd.DataFrame) -> list[str]:
    """Return terms that complete the last word of the query, or that may follow it.

    `frame` are runs whose values are offered: after `key:` its values, after a part of a key the
    keys that begin so, else the most common terms that the query does not hold yet.
    """
    head, _, last = query.rpartition(" ")
    known = _values(frame)
    if ":" in last:
        key, _, begun = last.lstrip("-").partition(":")
        values = [v for v in known.get(key, []) if v.lower().startswith(begun.lower().strip('"'))]
        return [t for t in (_term(key, v) for v in values) if t != last][:_MOST_HINTS]
    if last:
        keys = sorted({*known, *FIELDS})
        return [f"{k}:" for k in keys if k.startswith(last.lower())][:_MOST_HINTS]
    used = {word.lstrip("-").partition(":")[0] for word in head.split()}
    offered = [_term(k, v) for k in _KEYS if k not in used for v in known.get(k, [])[:2]]
    return offered[: _MOST_HINTS - 1]


def _values(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return each key's values among these runs, the most common first; a lone value tells none."""
    columns = {
        "workload": frame["workload"].to_list(),
        "gpu": frame["gpu_model"].to_list(),
        "status": frame["status"].to_list(),
        "source": frame["source"].to_list(),
        "tag": [t for tags in frame["tags"] for t in _tags(tags)],
    }
    own = frozenset(columns)
    for params in frame["params"]:
        for name, value in params.items():
            if name not in own:
                columns.setdefault(name, []).append(value)
    counted = {k: Counter(str(v) for v in vs if is_there(v)) for k, vs in columns.items()}
    return {
        k: [value for value, _ in found.most_common()]
        for k, found in counted.items()
        if len(found) > 1 or k in ("gpu", "tag")
    }


def _tags(tags: object) -> list[str]:
    return str(tags).replace(",", " ").split()


def _term(key: str, value: str) -> str:
    return f'{key}:"{value}"' if " " in value else f"{key}:{value}"


def _take() -> None:
    chosen = st.session_state.get("filter_hint")
    if not chosen:
        return
    query = str(st.session_state.get("q") or "")
    head, _, last = query.rpartition(" ")
    kept = query if not last else head
    st.session_state["q"] = f"{kept.strip()} {chosen}".strip() + ("" if chosen[-1] == ":" else " ")
    st.session_state["filter_hint"] = None


def syntax_error(query: str, exc: QuerySyntaxError) -> None:
    """Show a filter's error under the place where it is."""
    st.error(plain_markdown(str(exc)), icon=":material/error:")
    st.code(f"{query}\n{' ' * exc.position}^", language=None)
    with st.expander("What a filter can say", expanded=True):
        filter_help()


def filter_help() -> None:
    """Explain the filter language."""
    st.markdown(
        """
Terms are joined by *and*; a minus in front negates one: `gpu:H100 -tag:old`

| kind | keys | example |
| --- | --- | --- |
| numbers | `latency` `kernel_time` (ms) `memory` `idle` `gemm` `samples` | `memory>2GB` |
| part of a text | `gpu` `name` `notes` `error` `worker` | `name:decode` |
| whole word | `status` `source` `tag` `id` `workload` | `status:done,oom` |
| parameters | any name of a workload's field | `compile:none batch:1,8` |
| free text | anything else, quotes keep blanks | `"max-autotune"` |
"""
    )
