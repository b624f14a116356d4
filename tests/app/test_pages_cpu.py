"""A run on a CPU is spoken of in its own words: operators, and no advice that needs a GPU."""

import gzip
import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.compare.engine import compare
from analysis.export import to_markdown
from app.cli.compare_text import compare_lines
from app.imports import import_paths
from core.config import DataDir
from db.connection import opened
from db.fetch import run_view
from db.workers import register_worker
from tests.app.test_pages import open_page


def whole_page(run_id: str) -> None:
    """Draw one run as the page does, with every tab open at once; its links lead nowhere."""
    from unittest.mock import patch

    from app.ui import data
    from app.ui.run import head, tabs

    link = "streamlit.delta_generator.DeltaGenerator.page_link"
    with patch(link), patch("streamlit.page_link"):
        view = data.fetch_view(run_id)
        head.title(view)
        head.answer(view)
        head.headline(view)
        for draw in tabs.TABS.values():
            draw(view)


def trace(path: Path, add_us: int = 100) -> Path:
    """Write the PyTorch trace of one iteration: two operators in a range."""
    spans = [
        ("user_annotation", "BENCHMARK", 0, 1000),
        ("user_annotation", "iteration_0", 0, 900),
        ("user_annotation", "forward", 0, 800),
        ("cpu_op", "aten::mm", 10, 300),
        ("cpu_op", "aten::add", 400, add_us),
    ]
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for cat, name, ts, dur in spans
    ]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def test_a_comparison_of_cpu_runs_names_operators_on_the_page_and_in_files(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [import_paths(data_dir, [trace(tmp_path / f"{n}.json.gz", n)]).run_id for n in (100, 50)]
    at = open_page(
        monkeypatch, str(data_dir.root), "compare", a=ids[0], b=ids[1], metric="kernel_time"
    )
    kinds = (at.title, at.subheader, at.markdown, at.caption, at.get("html"))
    said = [str(getattr(e, "value", "") or e.proto.body) for kind in kinds for e in kind]
    said += [m.label for m in at.metric] + [o for s in at.selectbox for o in s.options]
    said += [name for table in at.dataframe for name in table.value.columns]
    assert "Operator matching" in said and "Operator time / step" in said
    with opened(data_dir.db_path) as db:
        views = [run_view(db, data_dir, run_id) for run_id in ids]
    found = compare(views[:1], views[1:], metric="kernel_time")
    said += [*compare_lines(found), to_markdown(found)]
    for word in ("kernel ", "kernels", "launches", "gpu"):
        assert [text for text in said if word in text.lower()] == [], word


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> AppTest:
    folder = tmp_path_factory.mktemp("cpu")
    data = DataDir(root=folder / "data").ensure()
    found = import_paths(data, [trace(folder / "trace.json.gz")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPBOARD_DATA", str(data.root))
        at = AppTest.from_function(
            whole_page, default_timeout=60, kwargs={"run_id": found.run_id}
        ).run()
    assert not at.exception
    return at


def test_headline_and_tables_of_a_cpu_run_name_operators(page: AppTest) -> None:
    labels = {m.label for m in page.metric}
    assert "Operator time / step" in labels
    assert not {"GPU busy", "Kernel time", "Kernel time / step"} & labels
    columns = [list(t.value.columns) for t in page.dataframe]
    kernels = next(c for c in columns if "operator" in c)
    assert "calls / step" in kernels and not {"grid", "registers", "launches"} & set(kernels)
    phases = next(c for c in columns if "phase" in c)
    assert "operator sum ms" in phases and "GPU projection ms" not in phases


def test_no_tab_of_a_cpu_run_advises_what_only_a_gpu_has(page: AppTest) -> None:
    kinds = (page.markdown, page.caption, page.text, page.get("html"))
    said = [str(getattr(e, "value", "") or e.proto.body) for kind in kinds for e in kind]
    assert any("CUDA devices only" in text for text in said)
    for word in ("ncu ", "nsys", "kernels", "launches", "this gpu"):
        assert [text for text in said if word in text.lower()] == [], word


def test_the_trace_of_a_cpu_run_is_offered_where_its_timeline_would_be(page: AppTest) -> None:
    labels = [b.proto.label for b in page.get("download_button")]
    assert "Chrome trace for Perfetto" in labels


def test_the_card_of_a_cpu_worker_does_not_say_that_nobody_looked_at_its_host(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(data_dir.db_path) as db:
        register_worker(db, "w1", version="0.1.0", queues=["cpu"], gpus=[{"model": "cpu"}], info={})
    at = open_page(monkeypatch, str(data_dir.root), "gpus")
    said = [c.value for c in at.caption]
    assert any("reported nothing about its tools" in text for text in said)
    assert not any("No worker has looked" in text for text in said)
