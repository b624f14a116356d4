"""Every published figure comes out of a study, equal to its source and marked as published."""

import csv
import re
from collections import Counter
from decimal import Decimal

import pytest

from analysis.export import to_markdown
from analysis.published import GPU_NOT_NAMED, PATHS, load_figures, sources
from analysis.studies import Cell, list_studies, run_study

ROWS = [
    row for path in PATHS for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
]
NUMBERS = [row for row in ROWS if row["unit"] != "name"]
SHOWN = {"oom": "OOM", "missing": "missing"}


def as_digits(text: str) -> str:
    """Return a printed number without an exponent."""
    return f"{Decimal(text):f}" if "e-" in text else text


def cells_of(name: str) -> list[Cell]:
    table = run_study(name, [], published=True)
    return [c for pivot in table.pivots for row in pivot.cells for c in row if c.text]


@pytest.mark.parametrize("source", sources())
def test_a_sources_study_prints_each_of_its_figures_once(source: str) -> None:
    expected = Counter(
        (SHOWN.get(r["status"], as_digits(r["value"])), r["unit"], r["status"])
        for r in NUMBERS
        if r["source"] == source
    )

    cells = cells_of(source)

    assert Counter((c.text, c.unit, c.status) for c in cells) == expected
    assert {(c.provenance, c.source) for c in cells} == {("published", source)}


def test_all_figures_of_the_file_are_in_some_study() -> None:
    names = {s.name for s in list_studies() if s.is_publication}

    assert names == set(sources())
    assert sum(len(cells_of(name)) for name in names) == len(NUMBERS)
    assert len(load_figures()) == len(ROWS)


def test_published_kernel_names_stand_beside_their_figures() -> None:
    tables = {p.title: p for p in run_study("cs336-nsys-new-base", [], published=True).pivots}
    for metric, title in (
        ("top_kernel_name", "Longest kernel"),
        ("top_non_gemm_kernel", "Longest kernel besides GEMM"),
    ):
        wanted = {
            (r["model"], r["seq_len"], r["mode"].replace("train_", "train_step/"), r["value"])
            for r in ROWS
            if r["metric"] == metric
        }
        pivot = tables[title]
        shown = [dict(zip(pivot.row_fields, key, strict=True)) for key in pivot.rows]
        found = {
            (s["model"], s["seq_len"], s.get("mode", "forward"), s["kernel"])
            for s in shown
            if s["kernel"]
        }

        assert found == wanted


@pytest.mark.parametrize(
    ("study", "table", "row", "column", "text"),
    [
        ("nsight-minimal-llama", 0, "NVIDIA GeForce RTX 3060", "max-autotune", "3.57"),
        ("cs336-nsys-new-base", 0, "large", "256", "128.50"),
        ("cs336-nsys-new-base", 0, "2.7B", "1024", "OOM"),
        ("cs336-nsys-new-base", 1, "train_step/backward", "share", "17.0"),
        ("nanochat-inferonly", 0, "CUTLASS GEMM", "share", "97"),
        ("cs336-a100-compile", 0, "train_step", "default", "922.44"),
    ],
)
def test_a_figure_stands_in_the_row_and_column_of_its_source(
    study: str, table: int, row: str, column: str, text: str
) -> None:
    pivot = run_study(study, [], published=True).pivots[table]

    keys = next(i for i, key in enumerate(pivot.rows) if row in key)
    place = next(i for i, name in enumerate(pivot.columns) if name.startswith(column))

    assert pivot.cells[keys][place].text == text


def test_every_cell_of_a_layout_belongs_to_its_keys() -> None:
    pivot = run_study("cs336-a100-attention", [], published=True).pivots[0]
    ours = {"none": "naive", "default": "compiled"}
    wanted = {
        (ours[r["compile"]], r["d_model"], r["seq_len"], r["metric"]): r["value"]
        for r in ROWS
        if r["source"] == "cs336-a100-attention"
    }
    metrics = ("forward_latency", "backward_latency", "memory_before_backward", "memory_peak")

    found = {
        (*key[1:], metric): cell.text
        for key, cells in zip(pivot.rows, pivot.cells, strict=True)
        for metric, cell in zip(metrics, cells, strict=True)
    }

    assert found == wanted


def test_without_published_no_figure_of_others_is_shown() -> None:
    assert [c for s in list_studies() for p in run_study(s.name, []).pivots for c in p.cells] == []


def test_an_unnamed_gpu_is_called_so() -> None:
    pivot = run_study("forward-time", [], published=True).pivots[0]

    unnamed = [key for key in pivot.rows if "cs336-nsys-new-base" in key[0]]

    assert {key[pivot.row_fields.index("gpu")] for key in unnamed} == {GPU_NOT_NAMED}


def test_markdown_marks_the_source_of_each_published_row() -> None:
    text = to_markdown(run_study("decode-latency", [], published=True))

    assert "published: nsight-minimal-llama" in text
    assert "| none | 3.05 | 2.53 |" in text and "| max-autotune | 3.57 | 2.63 |" in text


def test_compiled_attention_has_one_name_whoever_measured_it() -> None:
    pivot = run_study("attention-scaling", [], published=True).pivots[1]
    names = {key[pivot.row_fields.index("model")] for key in pivot.rows}
    assert names == {"naive", "compiled"}
    assert "compile" not in pivot.row_fields


def test_no_published_figure_is_shown_in_scientific_notation() -> None:
    written = [r["value"] for r in ROWS if "e-" in r["value"] and r["unit"] != "name"]
    assert written  # the sources do write so
    pivots = [p for s in list_studies() for p in run_study(s.name, [], published=True).pivots]
    texts = [cell.text for p in pivots for row in p.cells for cell in row]
    assert [t for t in texts if re.fullmatch(r"[\d.]+e-\d+", t)] == []
    assert "0.0009766" in texts


def test_a_published_speed_up_is_a_ratio_of_published_latencies_and_no_latency() -> None:
    """The source prints 117.40 ms in fp32 and 102.00 ms in bf16, and no ratio."""
    latencies = {
        r["dtype"]: float(r["value"])
        for r in ROWS
        if (r["source"], r["model"], r["mode"], r["metric"])
        == ("cs336-a100", "small", "forward", "latency_median")
        and r["dtype"] in ("fp32", "bf16")
    }
    pivot = run_study("precision", [], published=True).pivots[1]
    row = next(
        cells
        for key, cells in zip(pivot.rows, pivot.cells, strict=True)
        if {"published: cs336-a100", "small", "forward"} <= set(key)
    )
    wanted = f"{latencies['fp32'] / latencies['bf16']:.2f}"
    assert [cell.text for cell in row if cell.text] == [wanted]
