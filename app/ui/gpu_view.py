"""One GPU: what it is, what it reached, what its tools may do."""

from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from app.ui import data, links
from app.ui.colours import gpu_colour
from app.ui.format import (
    UNKNOWN,
    ago,
    bytes_,
    count,
    gpu_name,
    many,
    noise_floor,
    percent,
    scaled,
    when,
)
from app.ui.widgets import card_border, plain_markdown, said_plainly, show_table
from core import gpus as gpu_table


def cards(frame: pd.DataFrame) -> None:
    """Draw one card a GPU, those online first, as many beside each other as the width takes."""
    ordered = frame.sort_values("is_online", ascending=False, kind="stable")
    if frame.empty:
        return
    with st.grid("auto", min_column_width=540, gap="small"):
        for row in ordered.to_dict("records"):
            _card(row)


def _card(row: dict[str, Any]) -> None:
    with st.container(border=True):
        with card_border(str(row["model"])):
            _head(row)
            st.markdown("**Peaks**")
            _peaks(row)
            st.markdown("**Tools**")
            _tools(str(row["model"]), row["info"] or {})
        bar = st.container(horizontal=True)
        bar.page_link(
            links.RUNS,
            label=many(row["num_runs"], "run"),
            icon=":material/table_rows:",
            query_params={"q": f'gpu:"{row["model"]}"'},
        )
        if not row["is_online"]:
            _forget(bar, str(row["id"]))


def _forget(place: Any, key: str) -> None:
    """Offer to remove a GPU that no worker has now."""
    with place.popover("Remove", icon=":material/delete:"):
        st.text("Forget this GPU and what was measured of it. Its runs stay.")
        if st.button("Remove this GPU", key=f"remove {key}", type="primary"):
            with said_plainly():
                data.remove_gpu(key)
            st.rerun()


def _head(row: dict[str, Any]) -> None:
    state = "online" if row["is_online"] else "offline" if row["worker_id"] else "from files only"
    dot = "#009e73" if row["is_online"] else "#8a94a6"
    facts = [
        f"compute capability {row['compute_capability']}" if row["compute_capability"] else "",
        f"{count(row['num_sms'])} SMs" if pd.notna(row["num_sms"]) else "",
        bytes_(row["memory_bytes"]) if pd.notna(row["memory_bytes"]) else "",
        f"driver {row['driver']}" if row["driver"] else "",
        noise_floor(row["noise_floor_frac"], (row["info"] or {}).get("noise_floors") or {}),
        f"seen {when(row['probed_at'])}" if row["probed_at"] else "",
    ]
    chips = "".join(f'<span class="wb-chip">{escape(f)}</span>' for f in facts if f)
    st.html(
        f'<div style="font-size:1.15rem;font-weight:650;margin-bottom:.4rem">'
        f'<span class="wb-dot" style="background:{gpu_colour(row["model"])};border-radius:.15rem">'
        f'</span>{escape(gpu_name(row["model"]))} <span class="wb-muted" style="font-weight:400;'
        f'font-size:.9rem"><span class="wb-dot" style="background:{dot};margin-left:.5rem"></span>'
        f'{state}</span></div><div class="wb-chips">{chips}</div>'
    )


def _peaks(row: dict[str, Any]) -> None:
    sheet = gpu_table.datasheet_peaks(row["model"])
    measured = row["peaks"] or {}
    names = list(dict.fromkeys([*sheet, *measured]))
    if not names:
        st.caption("Neither measured nor in the table of datasheets: no MFU, MBU or roofline.")
        return
    table = pd.DataFrame(
        {
            "peak": [_peak_label(n) for n in names],
            "measured": [_peak(n, measured.get(n)) for n in names],
            "datasheet": [_peak(n, sheet.get(n)) for n in names],
            "reached": [_reached(measured.get(n), sheet.get(n), n) for n in names],
        }
    )
    right = st.column_config.TextColumn(alignment="right")
    show_table(
        table,
        column_config={c: right for c in ("measured", "datasheet", "reached")},
        alt=f"Measured and datasheet peaks of {row['model']}",
    )
    if not measured:
        st.caption(
            "Not measured on this GPU yet. On its host: "
            "`./warpboard doctor --measure`. Until then MFU and MBU are held against the datasheet."
        )


def _peak_label(name: str) -> str:
    text = name.removesuffix("_per_s").removesuffix("_flops").removesuffix("_bytes")
    return text.replace("_", " ")


def _peak(name: str, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if name.endswith("_ns"):
        return f"{value:,.0f} ns"
    if "int8" in name:
        return scaled(value, "OP/s")
    return scaled(value, "B/s" if "bytes" in name else "FLOP/s" if "flops" in name else "")


def _reached(measured: float | None, sheet: float | None, name: str) -> str:
    if not measured or not sheet or name.endswith("_ns"):
        return UNKNOWN
    return percent(measured / sheet)


def _tools(model: str, info: dict[str, Any]) -> None:
    tools = info.get("tools") or {}
    if model == "cpu":
        st.caption("CPU jobs run under the PyTorch profiler, which comes with PyTorch.")
        return
    if not tools:
        st.caption("No worker has looked at this GPU's host: nothing is known about its tools.")
        return
    rows = [_tool_row(name, found) for name, found in sorted(tools.items())]
    show_table(
        pd.DataFrame(rows, columns=["tool", "state", "what to do"]),
        alt="Profiling tools and permissions of the host",
    )


def _tool_row(name: str, found: Any) -> tuple[str, str, str]:
    if not isinstance(found, dict):
        return (name, str(found) if found else "not found", "")
    usable = found.get("usable", found.get("ok", found.get("available")))
    state = str(found.get("version") or ("ready" if usable else found.get("why") or "not usable"))
    if usable is False and found.get("version"):
        state = f"{found['version']}, {found.get('why') or 'not usable'}"
    return (name, state, str(found.get("remedy") or found.get("fix") or ""))


def workers(frame: pd.DataFrame) -> None:
    """List the workers that have ever registered."""
    if frame.empty:
        return
    st.subheader("Workers", anchor=False)
    show_table(
        pd.DataFrame(
            {
                "worker": frame["id"],
                "state": ["online" if o else "offline" for o in frame["is_online"]],
                "version": frame["version"],
                "queues": [", ".join(map(str, q)) for q in frame["queues"]],
                "last heard of": [ago(t) for t in frame["seen_at"]],
            }
        ),
        alt="Workers and when they were last heard of",
    )


def how_to_add() -> None:
    """Show the command that adds a GPU host."""
    with st.expander("Add a GPU host", icon=":material/add:"):
        st.text("On the host with the GPU, in a checkout of the same version:")
        address = "http://DASHBOARD_HOST:8502"
        st.code(
            f"./warpboard worker --dashboard {address} --token-file worker.token"
            " --broker-file broker.url",
            language="bash",
            wrap_lines=True,
        )
        st.caption(plain_markdown("Both files, and what must be opened: docs/second-gpu-host.md."))
