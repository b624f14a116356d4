"""Where a run came from: environment, files, and how to do it again."""

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.job_text import profile_command, submit_command
from app.ui import data, links, style
from app.ui.format import bytes_, when
from app.ui.tables import show_table
from app.ui.widgets import plain_markdown


def environment(view: RunView) -> None:
    """List the run's settings and the versions it ran with."""
    run = view.run
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Run**")
        style.facts(
            [
                ("id", run.id),
                ("source", run.source),
                ("workload", run.workload or "not known"),
                ("device", run.gpu_model or "not known"),
                ("profilers", ", ".join(run.profilers) or "none"),
                ("processes of the clean pass", str(run.repeats)),
                ("created", when(run.created_at)),
                ("started", when(run.started_at)),
                ("finished", when(run.finished_at)),
                ("worker", run.worker_id or "none: was not run here"),
                *[(k, str(v)) for k, v in run.params.items()],
            ]
        )
    with right:
        tools, settings = versions(view)
        st.markdown("**Versions**")
        if tools:
            style.facts(tools)
        else:
            st.caption("The captures contain no versions.")
        if settings:
            st.markdown("**Settings**")
            style.facts(settings)


_VERSIONS = (
    *("warpboard", "torch", "triton", "jax", "cuda", "driver", "cudnn", "cublas", "nccl"),
    *("transformers", "numpy", "python", "os", "kernel"),
)
"""Entries of an environment that name a version, in the order in which they are shown."""
_TOOL_NAMES = {"nsys": "Nsight Systems", "ncu": "Nsight Compute", "torch": "PyTorch profiler"}


def versions(view: RunView) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the versions of every tool, the profilers of the captures too, and other settings."""
    env = {str(k): str(v) for k, v in view.run.environment.items()}
    captures = view.captures[view.captures["tool"].notna()]
    tools: dict[tuple[str, str], list[str]] = {}
    for tool, version, name in zip(
        captures["tool"], captures["tool_version"], captures["pass"], strict=True
    ):
        passes = tools.setdefault(
            (str(tool), version if isinstance(version, str) and version else "not stated"), []
        )
        passes.extend([str(name)] if name not in passes else [])
    of_tools = [
        (_TOOL_NAMES.get(tool, tool), f"{version} ({', '.join(passes)})")
        for (tool, version), passes in tools.items()
    ]
    named = [k for k in env if k in _VERSIONS or k.endswith(("_version", ".version", "_release"))]
    named.sort(key=lambda k: (_VERSIONS.index(k) if k in _VERSIONS else len(_VERSIONS), k))
    rest = sorted(k for k in env if k not in named)
    return of_tools + [(k, env[k]) for k in named], [(k, env[k]) for k in rest]


def files(view: RunView) -> None:
    """List the captures, what was taken out of them, and offer them for download."""
    if view.captures.empty:
        style.empty_state("No captures stored", "This run left no profiler files.")
        return
    captures = view.captures
    table = pd.DataFrame(
        {
            "file": captures["file_name"],
            "pass": captures["pass"],
            "kind": captures["kind"],
            "tool": captures["tool"].fillna("") + " " + captures["tool_version"].fillna(""),
            "size": [bytes_(b) for b in captures["bytes"]],
            "private removed": [
                ", ".join(p) or "nothing found" for p in captures["private_removed"]
            ],
            "SHA-256": captures["sha256"],
        }
    )
    show_table(table, alt="Captures of this run")
    st.caption(
        "Host names, users, paths, environment variables and device serial "
        "numbers are removed when a capture is stored. The hash is that of the "
        "stored file."
    )
    _download(view)


def _download(view: RunView) -> None:
    folder = data.paths().captures / view.run.id
    present = [n for n in view.captures["file_name"] if (folder / n).is_file()]
    if not present:
        st.caption("The files are not stored in this data directory.")
        return
    bar = st.container(horizontal=True, vertical_alignment="bottom")
    name = bar.selectbox("File", present, key="capture_file")
    bar.download_button(
        "Download",
        data=lambda: (folder / str(name)).read_bytes(),
        file_name=str(name),
        icon=":material/download:",
        on_click="ignore",
    )


def reproduce(view: RunView) -> None:
    """Show the commands that make this measurement again."""
    run = view.run
    if not run.workload:
        style.empty_state(
            "Imported captures",
            "The program that made them is not part of Warpboard: repeat it with your own command.",
        )
        return
    if run.workload == "command":
        st.text("In a shell where the program is:")
        st.code(
            profile_command(run.params, run.profilers, run.repeats),
            language="bash",
            wrap_lines=True,
        )
    st.text("Through this dashboard's queue:")
    repeats = run.repeats if run.repeats != 1 else None
    job = run.job | {"profilers": run.profilers, "repeats": repeats}
    st.code(submit_command(job), language="bash", wrap_lines=True)
    st.text(
        "On this host, without a dashboard or database, writing a "
        "bundle that can be imported anywhere:"
    )
    st.code(submit_command(job, "run") + " --out bundle", language="bash", wrap_lines=True)
    if st.button("Run again with a change", icon=":material/tune:", type="primary"):
        st.switch_page(links.SUBMIT, query_params={"from": run.id})
    st.caption(plain_markdown(f"Comparable runs have the hash {run.comparable_hash or 'none'}."))
