"""Exports: pasteable Markdown, strict JSON and CSV, HTML that is inert and complete."""

import csv
import io
import json
from html.parser import HTMLParser

import pandas as pd
import pytest

from analysis.compare.engine import compare
from analysis.compare.records import Comparison
from analysis.export import to_csv, to_html, to_json, to_markdown
from analysis.studies import StudyTable, run_study
from tests.analysis.compare.views import build_view

HOSTILE = '</td><script>alert(1)</script> a|b `c` <unnamed>::f<int, 4>(T*) [x](http://e.com) "q"'
FORMULA = "=HYPERLINK(1)"
SAMPLES = tuple(tuple(2.0 + 0.01 * p + 0.001 * i for i in range(6)) for p in range(5))


class Outline(HTMLParser):
    """Collect the tags of a page and every address it would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "action")]
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.tags[-1] == "td" and self.cells:
            self.cells[-1] += data


def kernels(factor: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": [HOSTILE, FORMULA],
            "grid": ["1,1,1"] * 2,
            "block": ["1,1,1"] * 2,
            "count": [1, 1],
            "total_ns": [1_000_000 * factor, 500_000],
            "is_opaque": [False, False],
            "category": ["elementwise", "gemm"],
            "origin": ["aten", "cublas"],
        }
    )


@pytest.fixture
def comparison() -> Comparison:
    summary = {"span_ns": 5_000_000, "busy_ns": 1_400_000}
    a = build_view(SAMPLES, name=HOSTILE, kernels=kernels(1), summary=summary)
    b = build_view(SAMPLES, id="r2", name="b", kernels=kernels(2), summary=summary)
    return compare([a], [b])


@pytest.fixture
def study() -> StudyTable:
    return run_study("top-kernels", [build_view(kernels=kernels(1))], published=True)


def test_html_of_hostile_names_has_no_script_and_loads_nothing(
    comparison: Comparison, study: StudyTable
) -> None:
    for page in (to_html(comparison), to_html(study)):
        outline = Outline(page)

        assert "script" not in outline.tags
        assert outline.addresses == []
        assert "http://" not in page.replace("(http://e.com)", "")


def test_html_shows_the_whole_name_and_a_chart(comparison: Comparison) -> None:
    outline = Outline(to_html(comparison))

    assert HOSTILE in outline.cells
    assert outline.tags.count("svg") == 3
    assert {"rect", "circle"} <= set(outline.tags)


def test_markdown_tables_keep_their_columns_whatever_the_names(
    comparison: Comparison, study: StudyTable
) -> None:
    for text in (to_markdown(comparison), to_markdown(study)):
        blocks = [b.splitlines() for b in text.split("\n\n") if b.startswith("|")]
        widths = [{line.replace("\\|", "").count("|") for line in block} for block in blocks]

        assert widths
        assert all(len(width) == 1 for width in widths)
        assert "<script>" not in text


def test_csv_is_read_back_and_formulas_are_texts(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))

    assert {r["a"] for r in rows} == {HOSTILE, "'" + FORMULA}
    assert sum(int(r["delta_ns"]) for r in rows) == 1_000_000


def test_csv_of_a_study_has_a_line_a_cell_with_its_source(study: StudyTable) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(study))))

    published = [r for r in rows if r["provenance"] == "published"]
    assert len(published) == 60
    assert {r["source"] for r in published} == {"cs336-nsys-new-base"}
    measured = [r for r in rows if r["provenance"] == "measured"]
    assert [r["status"] for r in measured] == ["ok"] * 3  # share, total and launches of one kernel


def test_json_of_a_comparison_is_its_document(comparison: Comparison) -> None:
    assert json.loads(to_json(comparison)) == comparison.as_dict()


def test_markdown_says_verdict_and_reason_first(comparison: Comparison) -> None:
    assert to_markdown(comparison).split("\n\n")[1].startswith("Verdict for latency: no difference")
