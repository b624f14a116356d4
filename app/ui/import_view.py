"""Store uploaded files as one run and say what was found in them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.imports import import_paths
from app.ui import data, links, style
from app.ui.format import bytes_, count
from app.ui.widgets import plain_markdown, show_table
from captures.contents import unique_name
from core.errors import AppError, UserError
from core.ids import new_id


def take(uploaded: Sequence[Any], name: str, described: str, keep_private: bool) -> None:
    """Import the files and keep the answer for `result`; an error names the file."""
    folder = data.paths().ensure().uploads / new_id("u")
    folder.mkdir()
    try:
        with st.spinner("Reading the captures"):
            found = import_paths(
                data.paths(),
                _stored(uploaded, folder),
                name=name.strip() or None,
                params=parse_described(described),
                keep_private=keep_private,
            )
    except AppError as exc:
        st.session_state.pop("imported", None)
        st.error(plain_markdown(str(exc)), icon=":material/error:")
        st.caption("Nothing was stored.")
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    st.session_state["imported"] = (found.run_id, found.is_new)


def _stored(uploaded: Sequence[Any], folder: Path) -> list[Path]:
    """Write uploads under their own names, as far as a file can have them."""
    names: list[str] = []
    for item in uploaded:
        base = item.name.replace("\\", "/").rsplit("/", 1)[-1]
        names.append(unique_name(base, names))
        (folder / names[-1]).write_bytes(item.getbuffer())
    return [folder / name for name in names]


def parse_described(text: str) -> dict[str, str]:
    """Return `k=v k=v` as a mapping; UserError names what is not of that form."""
    found = {}
    for word in text.split():
        key, sign, value = word.partition("=")
        if not sign or not key or not value:
            raise UserError(f"what it measured: {word!r} is not of the form name=value")
        found[key] = value
    return found


def result() -> None:
    """Show what the last import of this session found."""
    if "imported" not in st.session_state:
        return
    run_id, is_new = st.session_state["imported"]
    try:
        view = data.fetch_view(run_id)
    except AppError:
        del st.session_state["imported"]
        return
    said = "Imported" if is_new else "These very files were imported before"
    st.success(plain_markdown(f"{said}: {view.run.name}"), icon=":material/check_circle:")
    if st.button("Open the run", type="primary", icon=":material/open_in_new:"):
        links.open_run(run_id)
    show_table(_files(view), alt="Recognised files")
    style.facts([(k, v) for k, v in _contents(view) if v])
    for warning in view.warnings:
        st.warning(plain_markdown(warning.message), icon=":material/warning:")


def _files(view: RunView) -> pd.DataFrame:
    found = view.captures
    return pd.DataFrame(
        {
            "file": found["file_name"],
            "recognised as": found["kind"],
            "tool": found["tool"].fillna("") + " " + found["tool_version"].fillna(""),
            "size": [bytes_(b) for b in found["bytes"]],
            "private data removed": [
                ", ".join(p) or "nothing found" for p in found["private_removed"]
            ],
        }
    )


def _contents(view: RunView) -> list[tuple[str, str]]:
    sizes = (
        ("kernels", view.summary.get("num_kernels")),
        ("phases", len(view.phases)),
        ("host calls", len(view.api_calls)),
        ("transfers", len(view.transfers)),
        ("profiled launches", len(view.counters)),
        ("memory points", len(view.memory_points)),
        ("latency samples", len(view.samples)),
    )
    return [("GPU", view.run.gpu_model or "not named in the files")] + [
        (name, count(size) if size else "") for name, size in sizes
    ]
