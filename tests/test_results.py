"""Example runs give the numbers of their files, name nobody, and make results.md as it is."""

import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from app.demo.answers import differences
from app.demo.load import DATA, unpacked
from docs.generate import DOCS, generated
from docs.measured import RESULTS, charts, example_views

PRIVATE = re.compile(
    rb"HOME=|HOSTNAME=|USER=|GPU-[0-9a-f]{8}-"
    rb"|(?<![\w/])/(?:root|home|tmp|workspace|work|opt|mnt)/"
)
LIMIT_BYTES = 25_000_000
"""Of the data as it lies in the repository."""


@pytest.fixture(scope="module", autouse=True)
def examples_read_once(copy_examples: Callable[..., list[Any]]) -> Iterator[None]:
    """Take the example runs as the whole test session has read them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("docs.measured.load_demo", copy_examples)
        yield


@pytest.fixture(scope="module")
def bundles() -> Iterator[dict[str, Path]]:
    """The folder of each example run that is a bundle, those of archives included."""
    with unpacked() as entries:
        yield {e["name"]: e["bundle"] for e in entries if "bundle" in e}


def test_kernels_are_those_of_the_capture(bundles: dict[str, Path]) -> None:
    captured = {n: f / "nsys-0.sqlite" for n, f in bundles.items()}
    captured = {n: path for n, path in captured.items() if path.exists()}
    shown = {v.run.name: v.summary for v in example_views()}
    keys = ("num_kernels", "kernel_time_ns")
    assert {n: tuple(shown[n][key] for key in keys) for n in captured} == {
        n: _kernels(path) for n, path in captured.items()
    }
    assert len(captured) > 50


def _kernels(capture: Path) -> tuple[int, int]:
    with sqlite3.connect(f"file:{capture}?mode=ro&immutable=1", uri=True) as db:
        found: tuple[int, int] = db.execute(
            'SELECT COUNT(*), SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
        ).fetchone()
    return found


def test_latency_is_that_of_the_clean_passes(bundles: dict[str, Path]) -> None:
    views = {v.run.name: v for v in example_views()}
    for name, folder in bundles.items():
        view, samples_ns = views[name], _clean_samples_ns(folder)
        assert len(view.samples) == len(samples_ns), name
        if not samples_ns:
            no_steps = any(w.code == "no_steps_seen" for w in view.warnings)
            assert "latency_ms" not in view.summary and (view.run.oom or no_steps), name
            continue
        found = view.summary["latency_ms"]
        assert found["min"] == min(samples_ns) / 1e6, name
        assert found["median"] == pytest.approx(median(samples_ns) / 1e6), name


def _clean_samples_ns(bundle: Path) -> list[int]:
    """Return the samples of all processes without a profiler."""
    passes = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["passes"]
    results = [p["result"] or {} for p in passes if p["pass"] == "clean"]
    return [ns for result in results for ns in result.get("samples_ns", [])]


def test_no_file_of_a_bundle_names_a_user_a_host_a_gpu_or_a_folder(
    bundles: dict[str, Path],
) -> None:
    for path in (p for folder in bundles.values() for p in sorted(folder.iterdir())):
        raw = path.read_bytes()
        found = PRIVATE.search(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        assert found is None, f"{path.parent.name}/{path.name}: {found}"


def test_answers_are_what_reading_gives(bundles: dict[str, Path]) -> None:
    """Of one example each of the workloads and kinds of captures; --check compares all."""
    first: dict[tuple[str, frozenset[str]], str] = {}
    for name, folder in sorted(bundles.items()):
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        kinds = frozenset(c["kind"] for entry in manifest["passes"] for c in entry["captures"])
        first.setdefault((manifest["job"]["workload"], kinds), name)

    wrong = differences({"name": name, "bundle": bundles[name]} for name in first.values())

    assert wrong == [], "run: python -m docs.generate"
    assert len(first) > 20


def test_example_data_stays_small() -> None:
    assert sum(p.stat().st_size for p in Path(DATA).rglob("*") if p.is_file()) < LIMIT_BYTES


def test_results_are_what_the_example_runs_say() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert generated(text) == text, "run: python -m docs.generate"


def test_charts_are_what_the_example_runs_say() -> None:
    found = {path: path.read_text(encoding="utf-8") for path in RESULTS.glob("*.svg")}
    assert found == charts(), "run: python -m docs.generate"
