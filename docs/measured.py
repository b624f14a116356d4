"""The generated parts of results.md that come out of the example runs.

The example runs are loaded into a database of their own; the tables and charts of studies come out
of the functions that `warpboard study` prints with. Tables of `bench/kernels.py`: `kernel_rows.py`.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.export import to_markdown
from analysis.export.document import study_document
from analysis.export.svg import WIDTH
from analysis.iterations import num_iterations
from analysis.projection import CheckedPair, check_pairs
from analysis.runview import RunView
from analysis.studies import run_study
from analysis.studies.engine.records import StudyTable
from app.demo.load import load_demo
from core.config import data_dir
from db.connection import opened
from db.fetch import run_view
from db.runs import list_runs
from db.status import measured_on_both

RESULTS = Path(__file__).resolve().parent / "results"
DTYPES = ("bf16", "fp16", "fp8", "tf32", "fp32")
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One study on the page, as one command prints it."""

    study: str
    query: str = ""
    is_published: bool = False
    is_drawn: bool = False

    @property
    def command(self) -> str:
        """Return what prints the table."""
        query = f" --filter '{self.query}'" if self.query else ""
        return f"warpboard study {self.study}{query}{' --published' if self.is_published else ''}"


SHOWN: Mapping[str, Shown] = {
    "decode": Shown(study="decode-latency", query="tag:decode latency>0", is_drawn=True),
    "decode_published": Shown(
        study="nsight-minimal-llama",
        query="layers:1 cuda_graph:false kv_cache:buffer",
        is_published=True,
    ),
    "compiled": Shown(study="compile-speedup", is_drawn=True),
    "compiled_published": Shown(
        study="cs336-a100", query="layers:36 batch:32 gpu:H200", is_published=True
    ),
    "precision": Shown(study="precision", is_drawn=True),
    "gemm_fraction": Shown(
        study="gemm-fraction", query="workload:transformer tag:matrix", is_drawn=True
    ),
    "softmax": Shown(study="softmax-matmul", query="profilers:nsys dtype:fp32 gpu:H200"),
    "forward": Shown(
        study="forward-time", query="gpu:H200 dtype:fp32 tag:matrix mode:forward", is_drawn=True
    ),
    "attention": Shown(study="attention-scaling", query="gpu:H200 mode:forward", is_drawn=True),
    "attention_backward": Shown(
        study="attention-scaling", query="gpu:H200 mode:forward_backward", is_published=True
    ),
    "attention_memory": Shown(
        study="attention-memory", query="gpu:H200", is_published=True, is_drawn=True
    ),
    "training": Shown(study="precision", query="mode:train_step dtype:fp32 tag:matrix"),
    "memory": Shown(study="memory-phases", query="mode:train_step tag:matrix"),
    "moe": Shown(study="moe-routing", is_published=True),
    "scaling": Shown(study="scaling", query="tag:ranks"),
    "tiles": Shown(study="gemm-tiles", is_published=True),
    "scoreboard": Shown(study="gpu-scoreboard", is_drawn=True),
    "origin": Shown(study="kernel-origin", query="workload:decode layers:1 gpu:H200"),
    "non_gemm": Shown(
        study="top-non-gemm", query="workload:transformer gpu:H200 tag:matrix status:done"
    ),
}
"""Parts of the page by name."""
_UNKNOWN = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """The example runs and what needs their database."""

    views: tuple[RunView, ...]
    ids_by_query: Mapping[str, frozenset[str]]
    pairs: tuple[CheckedPair, ...]
    "Jobs measured on an H100 and an H200, projected from the first to the second."
    pairs_both_ways: tuple[CheckedPair, ...]
    "The same and back; a job whose source has no kernels is left out of that way."


@cache
def examples() -> Examples:
    """Return the example runs, from a database that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        data = data_dir(folder)
        ids = [imported.run_id for imported in load_demo(data, lambda name: None)]
        with opened(data.db_path) as db:
            views = {run_id: run_view(db, data, run_id) for run_id in ids}
            queries = {shown.query for shown in SHOWN.values()}
            pairs = [
                (views[source], views[target])
                for source, model, target in measured_on_both(db, H100)
                if model == H200
            ]
            return Examples(
                views=tuple(views.values()),
                ids_by_query={
                    query: frozenset(list_runs(db, query, limit=5000)["id"]) for query in queries
                },
                pairs=check_pairs(pairs),
                pairs_both_ways=check_pairs([*pairs, *((b, a) for a, b in pairs)]),
            )


def example_views() -> tuple[RunView, ...]:
    """Return the example runs."""
    return examples().views


def example_runs() -> str:
    """Return how many runs of each workload there are on each GPU, and how many ran out."""
    num: Counter[tuple[str, str]] = Counter()
    num_oom: Counter[tuple[str, str]] = Counter()
    num_processes: Counter[tuple[str, str]] = Counter()
    for view in example_views():
        key = (view.run.gpu_model or "not named", view.run.workload or "imported")
        num[key] += 1
        num_oom[key] += view.run.status == "oom"
        num_processes[key] += view.samples["process"].nunique() if len(view.samples) else 0
    rows = [
        (gpu, workload, *(str(c[gpu, workload]) for c in (num, num_processes, num_oom)))
        for gpu, workload in sorted(num)
    ]
    head = ("GPU", "workload", "runs", "processes without a profiler", "out of memory")
    return table(head, rows)


def measured_peaks() -> str:
    """Return what each GPU reached on the day of its runs, and its noise between processes."""
    names = {
        "copy_bytes_per_s": ("copy, TB/s", 2, 1e-12),
        **{f"gemm_{d}_flops_per_s": (f"{d}, TFLOP/s", 0, 1e-12) for d in DTYPES},
        "launch_ns": ("launch, us", 1, 1e-3),
    }
    rows: dict[tuple[str, ...], None] = {}
    for view in example_views():
        cells = tuple(number(view.peaks.get(k), n, scale) for k, (_, n, scale) in names.items())
        noise = number(view.noise_floor_frac, 1, 100)
        if view.peaks:
            rows[(view.run.gpu_model or _UNKNOWN, *cells, noise)] = None
    noise_head = "noise of launch-bound work, %"
    return table(("GPU", *(title for title, _, _ in names.values()), noise_head), sorted(rows))


def profiling_overhead() -> str:
    """Return what each profiler pass costs: its iteration's median over the clean pass's."""
    head = (
        *("run", "clean, ms", "95 % interval", "processes", "nsys, ms", "memory, ms", "trace, ms"),
        *("kernels an iteration", "idle under nsys, %"),
    )
    rows = []
    for view in example_views():
        clean = view.summary.get("latency_ms") or {}
        if not clean or view.profiled_samples.empty or not _is_shown(view):
            continue
        medians = view.profiled_samples.groupby("pass")["latency_ns"].median() / 1e6
        num, kernels, ci95 = (
            num_iterations(view.phases),
            view.summary.get("num_kernels"),
            clean["ci95"],
        )
        rows.append(
            (
                view.run.name,
                f"{clean['median']:.3f}",
                f"{ci95[0]:.3f} to {ci95[1]:.3f}" if ci95 else _UNKNOWN,
                str(view.samples["process"].nunique()),
                *(
                    f"{medians[p]:.3f} (x {medians[p] / clean['median']:.2f})"
                    if p in medians
                    else ""
                    for p in ("nsys", "memory", "trace")
                ),
                str(round(kernels / num)) if num and kernels else _UNKNOWN,
                number(view.summary.get("profiled_idle_frac"), 1, 100),
            )
        )
    return table(head, sorted(rows))


def _is_shown(view: RunView) -> bool:
    """Leave out all forward passes but those of one length: their overhead says the same."""
    params = view.run.params
    return params.get("mode") != "forward" or params.get("seq_len") == 512


def projected_latencies() -> str:
    """Return each job's latency on the H200 as projected from the H100, and measured."""
    views = {view.run.id: view for view in example_views()}
    rows = []
    for pair in sorted(
        examples().pairs, key=lambda p: views[p.source_id].summary["profiled_idle_frac"]
    ):
        source = views[pair.source_id]
        rows.append(
            (
                source.run.name.removeprefix("H100: "),
                number(source.summary["idle_frac"], 0, 100),
                number(source.summary["profiled_idle_frac"], 0, 100),
                f"{source.summary['latency_ms']['median']:.3f}",
                f"{pair.projected_ms:.3f}",
                f"{pair.measured_ms:.3f}",
                f"{100 * pair.error_frac:+.1f}",
            )
        )
    head = (
        "job",
        "idle on the H100, %",
        "under nsys, %",
        "H100, ms",
        "projected, ms",
        "H200, ms",
        "error, %",
    )
    return table(head, rows)


def study_part(name: str) -> str:
    """Return a study as its command prints it, with the command and its charts."""
    body = to_markdown(_result(name)).strip().removeprefix("## ").split("\n", 1)[1].strip()
    body = body.split("\n### ", 1)[1] if "\n### " in body else body
    title = _result(name).study.title
    body = f"#### {body}".replace("\n### ", "\n#### ")
    pictures = "".join(
        f"\n\n![{title}, chart](results/{path.name})"
        for path in charts()
        if path.stem.rpartition("-")[0] == name.replace("_", "-")
    )
    return f"`{SHOWN[name].command}`\n\n{body}{pictures}"


@cache
def charts() -> dict[Path, str]:
    """Return the text of every chart file of the studies: {path: SVG}."""
    return {
        RESULTS / f"{name.replace('_', '-')}-{place}.svg": as_file(table.svg)
        for name, shown in SHOWN.items()
        if shown.is_drawn
        for place, table in enumerate(study_document(_result(name)).tables, start=1)
        if table.svg
    }


@cache
def _result(name: str) -> StudyTable:
    shown = SHOWN[name]
    ids = examples().ids_by_query[shown.query]
    chosen = [view for view in example_views() if view.run.id in ids]
    return run_study(shown.study, chosen, published=shown.is_published)


def number(value: float | None, digits: int, scale: float = 1.0) -> str:
    """Return a number with so many digits; blank where it is not known."""
    return _UNKNOWN if value is None else f"{value * scale:.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, the first column to the left."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_file(svg: str) -> str:
    """Return a drawing of the exports as a file of its own: size, letters, light background."""
    frame = f' width="{WIDTH}" font-family="sans-serif" font-size="11" fill="#1c2330" viewBox="0 0 '
    head, body = svg.replace(' viewBox="0 0 ', frame, 1).split(">", 1)
    return f'{head}><rect width="100%" height="100%" fill="#ffffff"/>{body}\n'
