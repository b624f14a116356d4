"""Physical GPUs by model, what each reached, and what the hosts' tools may do."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from analysis.colours import gpu_colour
from app import second_host
from app.ui import cached, data, links
from app.ui.format import (
    UNKNOWN,
    ago,
    bytes_,
    count,
    duration,
    gpu_name,
    many,
    noise_floor,
    percent,
    scaled,
    when,
)
from app.ui.style import chips
from app.ui.tables import Head, printed_table
from app.ui.widgets import card_border, plain_markdown, said_plainly
from core import gpus as gpu_table
from core.plain_text import escape
from db import workers

_MOST_NAMED = 2
_MOST_OF_FILES = 2
"Cards of a model that only captures name, shown at once."


def cards(frame: pd.DataFrame) -> None:
    """Draw the GPUs by model, those online first, then those with most runs: a card for each."""
    online = frame.groupby("model")["is_online"].transform("any")
    ordered = frame.assign(model_online=online, is_cpu=frame["model"] == "cpu").sort_values(
        ["is_cpu", "model_online", "num_runs", "model", "is_online", "host", "ordinal"],
        ascending=[True, False, False, True, False, True, True],
        kind="stable",
    )
    for model, group in ordered.groupby("model", sort=False):
        rows = group.to_dict("records")
        with card_border(str(model)):
            _model_head(str(model), rows)
        served = [r for r in rows if r["worker_id"]]
        shown = served or ([r for r in rows if _is_measured(r)] or rows)[:_MOST_OF_FILES]
        _grid(shown, rows)
        if unknown := [r for r in rows if not any(r is s for s in shown)]:
            with st.expander(f"{many(len(unknown), 'more card')} that captures name"):
                _grid(unknown, rows)


def _is_measured(row: dict[str, Any]) -> bool:
    return bool(row["peaks"] or pd.notna(row["noise_floor_frac"]))


def _grid(shown: list[dict[str, Any]], of_model: list[dict[str, Any]]) -> None:
    with st.grid("auto", min_column_width=480, gap="small"):
        for row in shown:
            _card(row, [r for r in of_model if r is not row])


def _model_head(model: str, rows: list[dict[str, Any]]) -> None:
    """Say what all GPUs of a model have in common, and lead to their runs."""
    first = rows[0]
    facts = [
        f"compute capability {first['compute_capability']}" if first["compute_capability"] else "",
        f"{count(first['num_sms'])} SMs" if pd.notna(first["num_sms"]) else "",
        bytes_(first["memory_bytes"]) if pd.notna(first["memory_bytes"]) else "",
    ]
    items = "".join(f'<span class="wb-chip">{escape(f)}</span>' for f in facts if f)
    bar = st.container(horizontal=True, vertical_alignment="center")
    bar.html(
        f'<div class="wb-chips"><h2 class="wb-model"><span class="wb-dot" style="background:'
        f'{gpu_colour(model)};border-radius:.15rem"></span>{escape(gpu_name(model))}</h2>'
        f"{items}</div>",
        width="content",
    )
    bar.page_link(
        links.RUNS,
        label=many(first["num_runs"], "run"),
        icon=":material/table_rows:",
        query_params={"q": f'gpu:"{model}"'},
    )


def _card(row: dict[str, Any], others: list[dict[str, Any]]) -> None:
    with st.container(border=True):
        with card_border(str(row["model"])):
            _head(row)
            if not gpu_table.is_one_gpu(row["id"]):
                st.caption(_which_card(row, others))
            _peaks(row)
        if not row["is_online"]:
            _forget(st.container(horizontal=True), str(row["id"]))


def name_of(row: dict[str, Any]) -> str:
    """Return which GPU of its model this is: `node7, GPU 1`; a CPU by its host alone."""
    if not row["worker_id"]:
        return ", ".join(["As named in captures", *_places(row)])
    host = str(row["host"] or "unknown host")
    if row["model"] == "cpu":
        return host
    return f"{host}, GPU {int(row['ordinal'])}" if pd.notna(row["ordinal"]) else host


def _places(row: dict[str, Any]) -> list[str]:
    bus = (row["info"] or {}).get("bus")
    return ([f"bus {bus}"] if bus else []) + (
        [f"GPU {int(row['ordinal'])}"] if pd.notna(row["ordinal"]) else []
    )


def _which_card(row: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Say what files leave open that give no uuid: which card of the model this is."""
    alike = [r for r in others if gpu_table.may_be_one(_told(row), _told(r))]
    text = "Its files contain no UUID: its runs may come from several cards, so peaks"
    text += " measured in one run are not used for another."
    if not alike:
        return text
    names = list(dict.fromkeys(plain_markdown(_spoken(r)) for r in alike))
    if len(names) > _MOST_NAMED:
        return f"{text} It may be one card with any of {many(len(alike), 'other')} of this model."
    return f"{text} It may be one card with {' or '.join(names)}."


def _spoken(row: dict[str, Any]) -> str:
    """Return what tells a card from the others of its model in a sentence."""
    if row["worker_id"]:
        return name_of(row)
    return str(row["uuid"] or "") or ", ".join(_places(row)) or "the one without a place"


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """Return a stored record as files state it: without what is missing."""
    known = {k: row[k] for k in ("uuid", "memory_bytes", "ordinal") if pd.notna(row[k])}
    known |= {k: int(known[k]) for k in ("memory_bytes", "ordinal") if k in known}
    return known | {"bus": (row["info"] or {}).get("bus")}


def _forget(place: Any, key: str) -> None:
    """Offer to remove a GPU that no worker has now."""
    with place.popover("Remove", icon=":material/delete:"):
        st.text("Forget this GPU and its measurements. Its runs are kept.")
        if st.button("Remove this GPU", key=f"remove {key}", type="primary"):
            with said_plainly():
                cached.read(workers.remove_gpu, key)
            st.rerun()


def _head(row: dict[str, Any]) -> None:
    state = "offline" if row["worker_id"] else "from files only"
    facts = [
        f"driver {row['driver']}" if row["driver"] else "",
        noise_floor(row["noise_floor_frac"], (row["info"] or {}).get("noise_floors") or {}),
        many(row["num_own_runs"], "run") + " on it" if row["worker_id"] else "",
        f"seen {when(row['probed_at'])}" if row["probed_at"] else "",
    ]
    uuid = f'<div class="wb-uuid">{escape(str(row["uuid"]))}</div>' if row["uuid"] else ""
    _title(name_of(row), facts, is_online=row["is_online"], offline=state, below=uuid)


def _title(
    title: str, facts: list[str], *, is_online: bool, offline: str = "offline", below: str = ""
) -> None:
    """Draw the head of a card: title, online or not, facts; `below` is trusted HTML."""
    dot, state = ("#009e73", "online") if is_online else ("#8a94a6", offline)
    st.html(
        f'<h3 class="wb-card">{escape(title)} <span class="wb-muted">'
        f'<span class="wb-dot" style="background:{dot};margin-left:.5rem"></span>'
        f"{state}</span></h3>{below}{chips(facts)}"
    )


def _peaks(row: dict[str, Any]) -> None:
    sheet = gpu_table.datasheet_peaks(row["model"])
    measured = row["peaks"] or {}
    names = list(dict.fromkeys([*sheet, *measured]))
    if not names:
        st.caption("No measured peak and no datasheet entry: no MFU, MBU or roofline.")
        return
    if not measured:
        st.caption(
            "Peaks not measured on this GPU yet. Run `./warpboard doctor "
            "--measure` on its host. Until then MFU and MBU use the datasheet "
            "peaks."
        )
        return
    heads = [Head(text="peak", is_number=False)]
    heads += [Head(text=text) for text in ("measured", "datasheet", "reached")]
    rows = [
        (
            _peak_label(n),
            _peak(n, measured.get(n)),
            _peak(n, sheet.get(n)),
            _reached(measured.get(n), sheet.get(n), n),
        )
        for n in names
    ]
    label = f"Measured and datasheet peaks of {row['model']}, {name_of(row)}"
    printed_table(heads, rows, label=label)


def _peak_label(name: str) -> str:
    text = name.removesuffix("_per_s").removesuffix("_flops").removesuffix("_bytes")
    text = text.removesuffix("_ns")
    return text.replace("_", " ")


def _peak(name: str, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if name.endswith("_ns"):
        return duration(value)
    if "int8" in name:
        return scaled(value, "OP/s")
    return scaled(value, "B/s" if "bytes" in name else "FLOP/s" if "flops" in name else "")


def _reached(measured: float | None, sheet: float | None, name: str) -> str:
    if not measured or not sheet or name.endswith("_ns"):
        return UNKNOWN
    return percent(measured / sheet)


def hosts(frame: pd.DataFrame) -> None:
    """Draw the hosts of workers: what each has for profiling, what it may do, and the fix."""
    if frame.empty:
        return
    st.subheader("Hosts", anchor=False)
    with st.grid("auto", min_column_width=480, gap="small"):
        for row in frame.to_dict("records"):
            with st.container(border=True), card_border(str(row["id"])):
                _host(row)


def _host(row: dict[str, Any]) -> None:
    info = row["info"] or {}
    facts = [f"worker {row['id']}", f"version {row['version']}", f"heard of {ago(row['seen_at'])}"]
    _title(str(info.get("host_label") or "unknown host"), facts, is_online=row["is_online"])
    rows = host_checks(info)
    if not rows:
        st.caption("This worker reported nothing about its tools and permissions.")
        return
    names = ("what", "state", "found, and what to do")
    heads = [Head(text=name, is_number=False) for name in names]
    cells = [(name, state, ". ".join(filter(None, found))) for name, state, *found in rows]
    printed_table(heads, cells, label=f"Tools and permissions of {info.get('host_label')}")


def host_checks(info: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return what a worker found on its host: name, ok or fault, what is there, the fix."""
    checks = info.get("checks") or []
    if checks:
        return [
            (
                str(check.get("name") or "").replace("_", " "),
                "ok" if check.get("is_ok") else "fault",
                str(check.get("found") or ""),
                str(check.get("fix") or ""),
            )
            for check in checks
        ]
    tools = info.get("tools") or {}
    return [
        (
            name,
            "fault" if tool.get("fault") or not tool.get("path") else "ok",
            str(tool.get("version") or tool.get("fault") or "not found"),
            "",
        )
        for name, tool in sorted(tools.items())
    ]


def how_to_add() -> None:
    """Show, step by step with this dashboard's addresses, how another GPU host is added."""
    with st.expander("Add a GPU host", icon=":material/add:"):
        for number, step in enumerate(second_host.steps(data.paths()), 1):
            done = " :material/check_circle:" if step.is_done else ""
            st.markdown(f"**{number}. {plain_markdown(step.title)}** on {step.where}{done}")
            st.text(step.text)
            if step.commands:
                st.code(step.commands, language="bash", wrap_lines=True)
        st.caption(
            plain_markdown(
                "More details, and what happens when a part is down: docs/second-gpu-host.md."
            )
        )
