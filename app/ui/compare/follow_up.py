"""What would decide a comparison: more repeats of both sides, or the runs that isolate a field."""

from collections.abc import Sequence

import streamlit as st

from analysis.compare.offered import Isolated, isolating_pairs
from analysis.compare.records import Comparison
from analysis.compare.verdict import pairs_asked
from analysis.runview import RunRow, RunView
from app.job_text import submit_command
from app.ui import data, links
from app.ui.widgets import plain_markdown, said_plainly
from core.spec import JobSpec
from workloads.registry import load_workloads

REPEATS = 5
_KNOWN_RUNS = 500


def repeats(comparison: Comparison, a: Sequence[RunView], b: Sequence[RunView]) -> None:
    """Offer what would decide the comparison: a click where jobs can be queued, else commands."""
    num = pairs_asked(comparison.next_step) or REPEATS
    jobs, why_not = interleaved(a, b, num)
    is_open = comparison.verdict == "not_enough_samples"
    if jobs and (is_open or comparison.verdict in ("faster", "slower", "no_difference")):
        if st.button(
            f"Run {num} interleaved repeats",
            icon=":material/repeat:",
            type="primary" if is_open else "secondary",
            help="A B A B ...: drift of the machine then affects both sides equally",
        ):
            _submit(jobs, f"repeats of {a[0].run.name} and {b[0].run.name}")
        return
    if not is_open:
        return
    st.caption(plain_markdown(why_not))
    known = [v.run for v in (a[0], b[0]) if v.run.workload in load_workloads()]
    if len(known) == 2:
        with st.expander("Commands to measure it on a host with this GPU"):
            st.code(
                f"for i in $(seq {num}); do\n"
                + "\n".join(f"  {submit_command(run.job)} --wait" for run in known)
                + "\ndone",
                language="bash",
                wrap_lines=True,
            )
    else:
        st.caption(
            f"This needs {num} more captures of each side, each from its own "
            "process, alternating between the two programs: import them and "
            "enter their names here, separated by commas."
        )


def interleaved(
    a: Sequence[RunView], b: Sequence[RunView], num: int = REPEATS
) -> tuple[list[JobSpec], str]:
    """Return clean jobs in the order A B A B, or none and the reason why they cannot run here."""
    served = _served()
    specs: list[JobSpec] = []
    for name, views in (("A", a), ("B", b)):
        for run in (v.run for v in views):
            why = _why_not(run, served)
            if why:
                return [], f"No repeats from here: side {name} ({run.name}) {why}."
            specs.append(
                JobSpec(workload=str(run.workload), params=dict(run.params), gpu=str(run.gpu_model))
            )
    distinct = list({spec.spec_hash: spec for spec in specs}.values())
    return distinct * num, ""


def _served() -> set[str]:
    return set(data.list_gpus().query("worker_id.notna()")["model"]) | {"cpu"}


def _why_not(run: RunRow, served: set[str]) -> str:
    """Return why a run's job cannot be repeated by the workers here; empty when it can."""
    if not run.workload or not run.params or run.workload not in load_workloads():
        return "is an import whose program is not part of Warpboard"
    if run.source == "demo":
        return "is example data"
    if str(run.gpu_model) not in served:
        return f"ran on {run.gpu_model or 'an unknown GPU'}, for which no worker is registered"
    return ""


def _submit(jobs: list[JobSpec], name: str) -> None:
    with said_plainly():
        data.submit(jobs, name=name)
    st.switch_page(links.QUEUE)


def isolate(comparison: Comparison, a: Sequence[RunView], b: Sequence[RunView]) -> None:
    """Name, where several fields differ, the pair of runs that isolates each."""
    one_a, one_b = a[0].run, b[0].run
    if not one_a.workload or one_a.workload != one_b.workload:
        return
    known = data.finished_runs(f'workload:"{one_a.workload}" status:done', limit=_KNOWN_RUNS)
    pairs = isolating_pairs(one_a, one_b, comparison.differs, known)
    if not pairs:
        return
    with st.container(border=True):
        names = ", ".join(p.variable for p in pairs)
        st.markdown(
            plain_markdown(f"{len(pairs)} variables differ at once ({names}).")
            + " These pairs isolate each:"
        )
        for pair in pairs:
            _pair(pair, a[0].run)


def _pair(pair: Isolated, a: RunRow) -> None:
    change = f"{pair.variable}: {pair.a} \u2192 {pair.b}"
    if pair.run_a and pair.run_b:
        st.page_link(
            links.COMPARE,
            label=plain_markdown(change),
            icon=":material/compare_arrows:",
            query_params={"a": pair.run_a, "b": pair.run_b},
        )
        return
    job = pair.missing
    bar = st.container(horizontal=True, vertical_alignment="center")
    bar.markdown(plain_markdown(f"{change}: not measured yet."))
    if job["gpu"] not in _served() or job["workload"] not in load_workloads():
        with bar.popover("The command"):
            st.code(submit_command(job), language="bash", wrap_lines=True)
    elif bar.button("Queue that run", key=f"isolate_{pair.variable}", icon=":material/play_arrow:"):
        spec = JobSpec(**job, profilers=a.profilers, repeats=a.repeats)
        _submit([spec], f"{pair.base.name}, {pair.variable} {pair.b}")
