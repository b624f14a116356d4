"""Server time of each page: `python -m bench.pages [--runs 10000] [--spans 1000000] [--data DIR]`.

Three data directories: the example runs, many runs, and one run whose span file holds a million
operations (a real capture's spans repeated in time). Each page is run once with cold caches
(`first`), then again (`again`, the median of five); CPU is the mean of all of them, which tells a
slow page from a busy machine. Nothing of a browser is in these times. `--data` names a data
directory that holds the example runs already.
Prints a table and one JSON line. Goals on two cores: a page 300 ms, Runs with 10 000 runs 150 ms, a
timeline window 50 ms, the dashboard's import 2 s.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
CAPTURE = ROOT / "tests/data/h100/nsys/train_bf16.sqlite"
REPEATS = 5
GOAL_PAGE_MS, GOAL_RUNS_MS, GOAL_WINDOW_MS, GOAL_IMPORT_S = 300.0, 150.0, 50.0, 2.0
PAGES = (
    *("overview", "submit", "queue", "runs", "compare", "studies", "trends", "advice", "gpus"),
    *("import_", "definitions"),
)
RUN_TABS = ("Kernels", "Operators", "Phases", "Timeline", "Memory", "Counters and roofline")
STUDIES = ("attention-scaling", "decode-latency", "forward-time")
Row = dict[str, object]


def time_page(data: Path, page: str, **query: str) -> tuple[float, float, float]:
    """Return ms of a page's first run, the median of the next ones, and CPU ms a run."""
    from streamlit.testing.v1 import AppTest

    from app.ui.widgets import BUG_TEXT

    os.environ["WARPBOARD_DATA"] = str(data)
    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=120).run()
    at.switch_page(f"page/{page}.py")
    for key, value in query.items():
        at.query_params[key] = value
    begin = time.process_time()
    times = [_ms(at.run) for _ in range(REPEATS + 1)]
    cpu_ms = (time.process_time() - begin) * 1e3 / len(times)
    if at.exception or any(BUG_TEXT in e.value for e in at.error):
        raise RuntimeError(f"{page} failed: see the log above")
    return times[0], statistics.median(times[1:]), cpu_ms


def _ms(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def example(folder: Path) -> list[str]:
    """Load the example runs that are not there yet; return the ids of all."""
    from app.demo.load import load_demo
    from core.config import data_dir

    return [r.run_id for r in load_demo(data_dir(folder), lambda name: None)]


def many_runs(folder: Path, num_runs: int) -> None:
    """Fill a database with finished runs of varying parameters and latencies."""
    from core.config import data_dir
    from core.spec import JobSpec
    from db.connection import opened
    from db.runs import insert_run, set_tags

    generator = random.Random(1)
    with opened(data_dir(folder).ensure().db_path) as db, db.atomic():
        for i in range(num_runs):
            params = {"compile": ("none", "default")[i % 2], "batch": 2 ** (i % 7), "seed": i}
            spec = JobSpec(workload="decode", params=params, gpu=("H100", "RTX 4090")[i % 2])
            run_id = insert_run(db, spec=spec, name=f"decode {i}")
            set_tags(db, run_id, ["nightly"] if i % 3 else ["paper", "nightly"])
            latency = generator.uniform(0.5, 5)
            db.conn.execute(
                "UPDATE runs SET status = 'done', latency_ms = ?, latency_lo_ms = ?,"
                " latency_hi_ms = ?, num_samples = 60, idle_frac = ?, gemm_frac = 0.7,"
                " started_at = created_at, finished_at = created_at WHERE id = ?",
                (latency, 0.98 * latency, 1.02 * latency, generator.random(), run_id),
            )


def million_spans(folder: Path, num_spans: int) -> str:
    """Import a capture and repeat its spans in time; return the run's id."""
    from analysis.span_file import parquet_settings
    from app.imports import import_paths
    from core.config import data_dir

    run_id = import_paths(data_dir(folder), [CAPTURE], name="long run").run_id
    path = span_file(folder, run_id)
    table = pq.read_table(path)
    start, end = (table[c].to_numpy() for c in ("start_ns", "end_ns"))
    length = int(end.max() - start.min()) + 1000
    parts = []
    for i in range(-(-num_spans // len(table))):
        shifted = table
        for column in ("start_ns", "end_ns", "launch_start_ns"):
            values = pa.compute.add(table[column], pa.scalar(i * length, pa.int64()))
            shifted = shifted.set_column(table.schema.get_field_index(column), column, values)
        parts.append(shifted)
    whole = pa.concat_tables([p.cast(table.schema) for p in parts]).slice(0, num_spans)
    whole = whole.unify_dictionaries()
    pq.write_table(whole, path, **parquet_settings(whole.schema))
    return run_id


def span_file(folder: Path, run_id: str) -> Path:
    """Return the one span file of an imported run."""
    files = (folder / "spans" / run_id).glob("*.parquet")
    return next(p for p in files if not is_beside(p))


def is_beside(path: Path) -> bool:
    """Whether a file holds ranges or host rows rather than spans."""
    return path.stem.endswith((".ranges", ".host"))


def time_windows(folder: Path, run_id: str) -> list[Row]:
    """Time loading and merging the spans once (as the page does), and windows of a part."""
    from app.ui.timeline.load import load_timeline
    from app.ui.timeline.window import window

    paths = tuple(p for p in (folder / "spans" / run_id).glob("*.parquet") if not is_beside(p))
    begin = time.perf_counter()
    timeline = load_timeline(paths)
    assert timeline is not None
    window(timeline)
    rows: list[Row] = [
        row("timeline: load and merge", (time.perf_counter() - begin) * 1e3, None, None)
    ]
    for name, frac in (("50 %", 0.5), ("10 %", 0.1), ("1 %", 0.01)):
        high = timeline.extent_ns * frac
        times = [_ms(partial(window, timeline, 0.0, high)) for _ in range(REPEATS + 1)]
        rows.append(
            row(f"timeline: {name}", times[0], statistics.median(times[1:]), GOAL_WINDOW_MS)
        )
    return rows


def row(
    name: str,
    first_ms: float,
    again_ms: float | None,
    goal_ms: float | None,
    cpu_ms: float | None = None,
) -> Row:
    """Return one line of the table."""
    times = {"first_ms": first_ms, "again_ms": again_ms, "cpu_ms": cpu_ms, "goal_ms": goal_ms}
    return {"what": name, **times}


def page_row(name: str, times: tuple[float, float, float], goal_ms: float = GOAL_PAGE_MS) -> Row:
    """Return the line of a page from `time_page`."""
    first_ms, again_ms, cpu_ms = times
    return row(name, first_ms, again_ms, goal_ms, cpu_ms)


def time_start(folder: Path) -> list[Row]:
    """Time importing what the first page needs, and the server from start to its first answer."""
    from bench.serving import served

    code = "import app.ui.overview_view, app.ui.run.tabs, app.ui.run.head, app.ui.compare.detail"
    begin, used = time.perf_counter(), _child_cpu_s()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    import_ms = (time.perf_counter() - begin) * 1e3
    import_cpu_ms = (_child_cpu_s() - used) * 1e3
    with served(folder, folder / "serve.log") as (_, seconds):
        start_ms = seconds * 1e3
    return [
        row("import of the dashboard", import_ms, None, GOAL_IMPORT_S * 1e3),
        row("import of the dashboard, CPU", import_cpu_ms, None, None),
        row("cold start to health", start_ms, None, None),
    ]


def _child_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(num_runs: int, num_spans: int, loaded: Path | None) -> Iterator[Row]:
    """Run everything in temporary data directories."""
    with tempfile.TemporaryDirectory() as scratch:
        demo, many, long = (Path(scratch) / n for n in ("demo", "many", "long"))
        demo = loaded or demo
        ids = example(demo)
        yield from time_start(demo)
        for page in PAGES:
            yield page_row(f"example: {page}", time_page(demo, page))
        for tab in RUN_TABS:
            yield page_row(f"example: run, {tab}", time_page(demo, "run", run_id=ids[0], tab=tab))
        for study in STUDIES:
            yield page_row(f"example: {study}", time_page(demo, "studies", name=study))
        times = time_page(demo, "compare", a=ids[0], b=ids[1], metric="kernel_time")
        yield page_row("example: compare two", times)
        many_runs(many, num_runs)
        for page in ("overview", "runs", "queue"):
            goal = GOAL_RUNS_MS if page == "runs" else GOAL_PAGE_MS
            yield page_row(f"{num_runs} runs: {page}", time_page(many, page), goal)
        times = time_page(many, "runs", q="compile:none latency<2 tag:paper", sort="fastest")
        yield page_row(f"{num_runs} runs: filtered", times, GOAL_RUNS_MS)
        run_id = million_spans(long, num_spans)
        times = time_page(long, "run", run_id=run_id, tab="Timeline")
        yield page_row(f"{num_spans} spans: run, Timeline", times)
        yield from time_windows(long, run_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="a data directory with the example runs")
    options = parser.parse_args()
    rows = []
    print(f"{'what':34} {'first ms':>9} {'again ms':>9} {'CPU ms':>8} {'goal ms':>8}")
    for item in measure(options.runs, options.spans, options.data):
        rows.append(item)
        again, cpu, goal = (
            f"{item[k]:.0f}" if item[k] is not None else ""
            for k in ("again_ms", "cpu_ms", "goal_ms")
        )
        line = f"{item['what']:34} {item['first_ms']:9.0f} {again:>9} {cpu:>8} {goal:>8}"
        print(line, flush=True)
    print(json.dumps({"bench": "pages", "rows": rows}))


if __name__ == "__main__":
    main()
