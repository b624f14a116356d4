"""The Submit form of a program of the user's own: a command, not a sweep over parameters."""

import json
import shlex
from collections.abc import Callable
from typing import Any

import streamlit as st

from app.ui import data
from app.ui.submit_form import device_of, field_key, fields_named, model_of
from app.ui.widgets import plain_markdown
from core.errors import UserError
from workloads.allowed import COMMANDS
from workloads.spec import WorkloadSpec

OWN = "command"
_TEXTS = ("argv", "name", "cwd", "ranges", "metrics")
_REST = ("iterations", "warmup", "latency", "timeout_s")


def own_program_fields(spec: WorkloadSpec, gpus: list[str]) -> dict[str, list[Any]]:
    """Draw the fields of an own program; return the values of those that were set.

    UserError for a command that cannot be read, and where no host of a chosen GPU allows any.
    """
    _say_allowed(gpus)
    command = _text(
        spec, "argv", "Command", _joined, _split_words,
        placeholder="/usr/bin/python3 /srv/jobs/train.py --epochs 1",
        help="A program that the host's operator allows, and its arguments, quoted as in a shell. "
        "There is no shell: nothing is expanded, piped or redirected.",
    )  # fmt: skip
    with st.grid("auto", min_column_width=230, gap="small"):
        name = _text(spec, "name", "Name", help="Empty: the program's file name.")
        cwd = _text(spec, "cwd", "Folder it runs in",
                    help="Beside the program or below a folder that the operator names. Empty: a "
                    "scratch folder of the run's own.")  # fmt: skip
        ranges = _text(spec, "ranges", "NVTX ranges to keep", help="Joined by commas. Empty: all.")
        metrics = _text(
            spec, "metrics", "Number that it prints", _first_of, _listed,
            placeholder="tok/s: ([0-9.]+)",
            help="A regular expression whose one group is the number. It is kept as a metric of "
            "the run and compared like latency. `(?P<higher>...)` or `(?P<lower>...)` names which "
            "way is better.",
        )  # fmt: skip
    found = dict(zip(_TEXTS, (command, name, cwd, ranges, metrics), strict=True))
    if not command:
        raise UserError("command: write the program and its arguments")
    return {k: v for k, v in found.items() if v} | fields_named(spec, _REST, gpus)


def _say_allowed(gpus: list[str]) -> None:
    """Say what each chosen GPU's host allows, as its worker told; UserError where that is none."""
    for gpu in gpus:
        allowed = data.allowed_programs(model_of(gpu), device_of(gpu))
        if allowed:
            st.caption(plain_markdown(f"{gpu} allows: {', '.join(allowed)}"))
        elif allowed is not None:
            raise UserError(
                f"{gpu}: own programs are off on its host; its operator sets {COMMANDS} there and "
                "starts the worker again"
            )


def _text(
    spec: WorkloadSpec,
    name: str,
    label: str,
    shown: Callable[[str], str] = str,
    stored: Callable[[str], str] = str,
    **options: Any,
) -> list[str]:
    """Draw one text; its value lies where the form's other fields keep theirs."""
    field = next(f for f in spec.fields if f.name == name)
    key, place = f"own_{name}", field_key(spec, field)
    kept = next(iter(st.session_state.get(place) or []), "")
    if st.session_state.get(f"{key}_kept") != kept:  # another run's, or started afresh
        st.session_state[key] = shown(kept) if kept else ""
    typed = st.text_input(label, key=key, **options).strip()
    value = stored(typed) if typed else ""
    st.session_state[f"{key}_kept"] = value
    st.session_state[place] = [value] if value else []
    return [value] if value else []


def _joined(argv: str) -> str:
    return shlex.join(json.loads(argv))


def _split_words(command: str) -> str:
    try:
        return json.dumps(shlex.split(command))
    except ValueError as error:
        raise UserError(f"command: {error}") from error


def _first_of(patterns: str) -> str:
    return next(iter(json.loads(patterns)), "")


def _listed(pattern: str) -> str:
    return json.dumps([pattern])
