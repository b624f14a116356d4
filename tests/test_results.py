"""Example runs give the numbers of their files, name nobody, and make results.md as it is."""

import gzip
import json
import re
import sqlite3
import statistics
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.demo.load import DATA, FOLDER
from docs.generate import DOCS, generated
from docs.measured import RESULTS, charts, example_views

ENTRIES = tomllib.loads((FOLDER / "demo.toml").read_text(encoding="utf-8"))["run"]
BUNDLES = {e["name"]: DATA / e["bundle"] for e in ENTRIES if "bundle" in e}
PRIVATE = re.compile(rb"HOME=|HOSTNAME=|USER=|(?<![\w/])/(?:root|home|tmp|workspace)/")
LIMIT_BYTES = 25_000_000


@pytest.fixture(scope="module", autouse=True)
def examples_read_once(copy_examples: Callable[..., list[Any]]) -> Iterator[None]:
    """Take the example runs as the whole test session has read them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("docs.measured.load_demo", copy_examples)
        yield


@pytest.fixture(params=BUNDLES, ids=lambda name: BUNDLES[name].name)
def name(request: pytest.FixtureRequest) -> str:
    """The name of each example run that is a bundle."""
    return str(request.param)


def test_kernels_are_those_of_the_capture(name: str) -> None:
    view = next(v for v in example_views() if v.run.name == name)
    capture = BUNDLES[name] / "nsys-0.sqlite"
    if not capture.exists():
        assert view.run.status == "oom"
        return
    with sqlite3.connect(f"file:{capture}?mode=ro&immutable=1", uri=True) as db:
        num, total_ns = db.execute(
            'SELECT COUNT(*), SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
        ).fetchone()
    assert view.summary["num_kernels"] == num > 0
    assert view.summary["kernel_time_ns"] == total_ns


def test_latency_is_that_of_the_clean_pass(name: str) -> None:
    view = next(v for v in example_views() if v.run.name == name)
    manifest = json.loads((BUNDLES[name] / "manifest.json").read_text(encoding="utf-8"))
    (clean,) = [p for p in manifest["passes"] if p["pass"] == "clean"]
    samples_ns = (clean["result"] or {}).get("samples_ns")
    if not samples_ns:
        assert "latency_ms" not in view.summary and view.run.oom
        return
    found = view.summary["latency_ms"]
    assert len(view.samples) == len(samples_ns)
    assert found["min"] == min(samples_ns) / 1e6
    assert found["median"] == pytest.approx(statistics.median(samples_ns) / 1e6)


def test_no_file_of_a_bundle_names_a_user_a_host_or_a_folder(name: str) -> None:
    for path in sorted(BUNDLES[name].iterdir()):
        raw = path.read_bytes()
        found = PRIVATE.search(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        assert found is None, f"{path.name}: {found}"


def test_example_data_stays_small() -> None:
    assert sum(p.stat().st_size for p in Path(DATA).rglob("*") if p.is_file()) < LIMIT_BYTES


def test_results_are_what_the_example_runs_say() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert generated(text) == text, "run: python -m docs.generate"


def test_charts_are_what_the_example_runs_say() -> None:
    found = {path: path.read_text(encoding="utf-8") for path in RESULTS.glob("*.svg")}
    assert found == charts(), "run: python -m docs.generate"
