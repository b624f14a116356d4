"""Store uploaded files as one run or several, and say what was found in them."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.imports import Given, import_several
from app.ui import data, links, style
from app.ui.format import bytes_, count, when
from app.ui.tables import show_table
from app.ui.widgets import plain_markdown
from captures.contents import unique_name
from captures.grouping import guess_runs
from core.errors import AppError, UserError
from core.ids import new_id

_ROUND = "import_round"
"Counts finished imports: widgets with it in their key begin empty after each."
_DONE = "imported"
_ONE, _SEVERAL = "One run", "Several runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the files of one run."""

    files: tuple[str, ...]
    run_id: str = ""
    is_new: bool = False
    error: str = ""


def form() -> None:
    """Draw the form of an import; a finished import leaves it empty."""
    turn = st.session_state.setdefault(_ROUND, 0)
    uploaded = st.file_uploader(
        "Files to import",
        accept_multiple_files=True,
        key=f"files_{turn}",
        help="Files over 200 MB: `./warpboard import PATH` on the dashboard's host.",
    )
    with st.container():  # there without a question too: what is typed below must not move
        groups = _groups([item.name for item in uploaded], turn)
    left, right = st.columns(2)
    name = left.text_input(
        "Name",
        key=f"name_{turn}",
        placeholder="name of the first file"
        if len(groups) < 2
        else "name of each group's first file",
        disabled=len(groups) > 1,
    )
    described = right.text_input(
        "What it measured", key=f"set_{turn}", placeholder="workload=decode compile=none dtype=bf16"
    )
    keep_private = st.checkbox(
        "Keep private fields",
        key="keep_private",
        help="By default, host name, user, paths, environment and serial numbers are removed.",
    )
    label = "Import" if len(groups) < 2 else f"Import {len(groups)} runs"
    if st.button(label, type="primary", icon=":material/upload_file:", disabled=not uploaded):
        chosen = [[uploaded[place] for place in group] for group in groups]
        _take(chosen, "" if len(groups) > 1 else name, described, keep_private)


def _groups(names: Sequence[str], turn: int) -> tuple[tuple[int, ...], ...]:
    """Return the files of each run; of several files the user says whether they are one."""
    whole = (tuple(range(len(names))),) if names else ()
    if len(names) < 2:
        return whole
    guess = guess_runs(names)
    choice = st.radio(
        f"These {len(names)} files are",
        (_ONE, _SEVERAL),
        index=0 if guess.is_one else 1,
        key=f"one_or_several_{turn}_{hash(tuple(names))}",
        horizontal=True,
    )
    likely = _ONE if guess.is_one else _SEVERAL
    text = f"{likely}, it seems: {guess.reason}."
    if choice == _SEVERAL:
        listed = "; ".join(", ".join(names[p] for p in group) for group in guess.groups)
        text += f" {len(guess.groups)} runs: {listed}."
    st.caption(plain_markdown(text))
    return whole if choice == _ONE else guess.groups


def _take(runs: Sequence[Sequence[Any]], name: str, described: str, keep_private: bool) -> None:
    """Import the files of each run; where all were refused the form stays, else it is cleared."""
    folder = data.paths().ensure().uploads / new_id("u")
    try:
        with st.spinner("Reading the captures"):
            outcomes = _imported(runs, folder, name, described, keep_private)
    except AppError as exc:
        outcomes = [Outcome(files=(), error=str(exc))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    st.session_state[_DONE] = outcomes
    if any(o.run_id for o in outcomes):
        st.session_state[_ROUND] += 1
        st.rerun()


def _imported(
    runs: Sequence[Sequence[Any]], folder: Path, name: str, described: str, keep_private: bool
) -> list[Outcome]:
    params = parse_described(described)
    given = []
    for number, files in enumerate(runs):
        place = folder / str(number)
        place.mkdir(parents=True)
        given.append(
            Given(
                paths=_stored(files, place),
                name=name.strip() or None,
                params=params,
                keep_private=keep_private,
                relabels=False,
            )
        )
    outcomes = []
    for run, result in zip(given, import_several(data.paths(), given), strict=True):
        files = tuple(path.name for path in run.paths)
        if isinstance(result, AppError):
            outcomes.append(Outcome(files=files, error=str(result)))
        else:
            outcomes.append(Outcome(files=files, run_id=result.run_id, is_new=result.is_new))
    return outcomes


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
    values = {}
    for word in text.split():
        key, sign, value = word.partition("=")
        if not sign or not key or not value:
            raise UserError(f"what it measured: {word!r} is not of the form name=value")
        values[key] = value
    return values


def result() -> None:
    """Show what the last import of this session found."""
    outcomes: list[Outcome] = st.session_state.get(_DONE, [])
    for outcome in outcomes:
        if outcome.error:
            st.error(plain_markdown(outcome.error), icon=":material/error:")
            named = plain_markdown(f" of {', '.join(outcome.files)}" if outcome.files else "")
            st.caption(f"Nothing{named} was stored.")
    stored = [o.run_id for o in outcomes if o.run_id]
    if len(stored) == 2 and st.button(
        "Compare the two", icon=":material/compare_arrows:", type="primary"
    ):
        links.open_compare(stored[:1], stored[1:])
    for outcome in outcomes:
        if outcome.run_id:
            _show(outcome, is_only=len(stored) == 1)


def _show(outcome: Outcome, *, is_only: bool) -> None:
    try:
        view = data.fetch_view(outcome.run_id)
    except AppError:  # deleted since
        return
    if outcome.is_new:
        text = f"Imported: {view.run.name}"
    else:
        these = "This file is" if len(outcome.files) == 1 else "These very files are"
        text = f"{these} here already, as {view.run.name} of {when(view.run.created_at)}."
        text += " Nothing was changed."
    st.success(plain_markdown(text), icon=":material/check_circle:")
    label = "Open the run" if is_only else f"Open {plain_markdown(view.run.name)}"
    if st.button(
        label,
        key=f"open {outcome.run_id}",
        type="primary" if is_only else "secondary",
        icon=":material/open_in_new:",
    ):
        links.open_run(outcome.run_id)
    show_table(_files(view), alt=f"Recognised files of {view.run.name}")
    style.facts([(k, v) for k, v in _contents(view) if v])
    for warning in view.warnings:
        st.warning(plain_markdown(warning.message), icon=":material/warning:")


def _files(view: RunView) -> pd.DataFrame:
    captures = view.captures
    return pd.DataFrame(
        {
            "file": captures["file_name"],
            "recognised as": captures["kind"],
            "tool": captures["tool"].fillna("") + " " + captures["tool_version"].fillna(""),
            "size": [bytes_(b) for b in captures["bytes"]],
            "private data removed": [
                ", ".join(p) or "nothing found" for p in captures["private_removed"]
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
