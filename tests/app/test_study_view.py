"""The printed tables of a study: one for each number, whole, with headings that say of what."""

import re

from analysis.studies import Cell, Pivot, Table
from analysis.studies.engine.records import Value
from app.ui.study_view import printed_parts
from app.ui.tables import Head, table_html

LATENCY = Value(key="latency", label="latency", unit="ms", measure="latency")
SPEEDUP = Value(key="speedup", label="speed-up", unit="x", measure="latency")
LAYOUT = Table(title="Latency", rows=("gpu",), columns=("seq_len",), values=(LATENCY, SPEEDUP))
COLUMNS = ("256 / latency (ms)", "256 / speed-up (x)", "512 / latency (ms)", "512 / speed-up (x)")


def cell(text: str) -> Cell:
    status = "ok" if text else "missing"
    return Cell(text=text, value=None, unit="ms", status=status, provenance="measured")


def pivot(*rows: tuple[str, str, tuple[str, ...]]) -> Pivot:
    return Pivot(
        title="Latency",
        row_fields=("from", "gpu"),
        rows=tuple((source, gpu) for source, gpu, _ in rows),
        columns=COLUMNS,
        cells=tuple(tuple(map(cell, texts)) for _, _, texts in rows),
    )


def test_each_number_is_a_table_of_its_own_without_empty_rows_and_columns() -> None:
    found = printed_parts(
        pivot(
            ("measured", "NVIDIA H200", ("1.0", "", "2.0", "")),
            ("measured", "NVIDIA A100", ("3.0", "1.5", "", "")),
        ),
        LAYOUT,
    )
    latency, speedup = found
    assert latency.rows == (("H200", "1.0", "2.0"), ("A100", "3.0", "\u2014"))
    assert latency.heads[1].text == "latency (ms) by sequence length (tokens)"
    assert latency.heads[1].subs == ("256", "512")
    assert (speedup.rows, speedup.heads[1].subs) == ((("A100", "1.5"),), ("256",))


def test_published_rows_are_named_and_ours_then_too() -> None:
    (latency,) = printed_parts(
        pivot(
            ("measured", "NVIDIA H200", ("1.0", "", "", "")),
            ("published: x", "NVIDIA A100", ("3.0", "", "", "")),
        ),
        LAYOUT,
    )
    assert [row[-1] for row in latency.rows] == ["measured", "published: x"]
    assert latency.theirs == (1,)


def test_a_table_has_headings_for_screen_readers_and_no_markup_of_others() -> None:
    heads = (Head(text="kernel", is_number=False), Head(text="time (ms)", subs=("a<b>", "c")))
    html = table_html(heads, [["<img src=x>", "1", "2"]], label='of "x"', muted=(0,))
    assert "<img" not in html and "&lt;img" in html
    assert re.findall(r'<th scope="(\w+)"', html) == ["col", "colgroup", "col", "col"]
    assert 'aria-label="of &quot;x&quot;"' in html
    assert html.count("wb-theirs") == 1
