"""What others named is shown as text: in Markdown, in tables' downloads, in exports."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from sqlite_utils import Database
from streamlit.testing.v1 import AppTest

from analysis.compare.records import Bar, Waterfall
from analysis.export import _csv_cell, _markdown
from analysis.export.svg import waterfall_svg
from app.ui.run.cards import own_cards
from app.ui.tables import _inert, _inert_cell
from app.ui.widgets import markdown_with_code, plain_markdown
from core.plain_text import escape
from core.spec import JobSpec
from db.fetch import run_row
from db.runs import insert_run
from tests.app.conftest import Cli


def test_downloaded_tables_hold_no_formula() -> None:
    frame = pd.DataFrame(
        {
            "name": ["=cmd|' /C calc'!A0", "decode", "\uff1d1"],
            "change": ["-12.3 %", "+1.0 %", None],
            "ms": [1.0, -2.0, 3.0],
            "=head": ["a", "b", "x" * 1_000_000],
        }
    )

    rows = [line.split(",") for line in _inert(frame).to_csv(index=False).splitlines()]

    cells = [cell for row in rows for cell in row]
    assert [c for c in cells if c[:1] in "=@\uff1d" and c] == []
    assert [row[1] for row in rows[1:3]] == ["-12.3 %", "+1.0 %"]
    assert rows[2][2] == "-2.0"
    assert max(map(len, cells)) <= 4_000


@pytest.mark.parametrize("text", ["\n=1", "\t=1", "\uff1d1", "=1", "\u200b=1"])
def test_exported_cells_are_no_formulas(text: str) -> None:
    assert str(_csv_cell(text)).startswith("'")


def test_the_name_of_a_number_that_a_program_printed_is_text() -> None:
    name = "![m](https://evil.example/p) tok/s"
    row = {"pass": "clean", "name": name, "unit": "", "better": None, "value": 5.0}
    view: Any = SimpleNamespace(
        metrics=pd.DataFrame([row | {"process_values": (5.0,)}]),
        run=SimpleNamespace(workload="command"),
    )

    (card,) = own_cards(view)

    assert "![" not in card.label and "://e" not in card.label
    assert card.label.replace("\\", "").replace("\u2060", "") == name


def test_exported_markdown_mentions_nobody() -> None:
    shown = _markdown("@octocat fixes #12, GH-7 at https://evil.example and www.evil.example")

    for link in ("@octocat", "#12", "GH-7", "https://evil", "www.evil"):
        assert link not in shown
    assert shown.replace("\u2060", "").startswith("@octocat fixes #12, GH-7")


@pytest.mark.parametrize(
    "text",
    [
        "![m](//evil.example/p)",
        ":red[x] :material/delete: :smile:",
        "https://evil.example",
        "www.evil.example",
        "ada@evil.example",
        "$x$ `y` **z** <b>",
    ],
)
def test_markdown_of_others_is_shown_as_text(text: str) -> None:
    def page(text: str) -> None:
        import streamlit as st

        from app.ui.widgets import plain_markdown

        st.markdown(plain_markdown(text))

    (shown,) = AppTest.from_function(page, kwargs={"text": text}).run().markdown
    bare = shown.value.replace("\\", "")
    assert bare.replace("\u2060", "") == text
    for link in ("://e", "www.", ":material/", ":smile:", "@evil"):
        assert link not in bare


def test_name_of_a_megabyte_is_cut(db: Database) -> None:
    run_id = insert_run(db, spec=JobSpec(workload="decode"), name="x" * 1_000_000)

    assert len(run_row(db, run_id).name) == 300
    assert len(plain_markdown("y" * 1_000_000)) <= 4_000


HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2066\u2028\rb\x00\x7f\U000e0041c"
STEERING = set("\x1b\x07\x9b\u202e\u2066\u2028\r\x00\x7f\U000e0041")


def test_no_name_steers_the_terminal(cli: Cli, db: Database) -> None:
    runs = [insert_run(db, spec=JobSpec(workload="decode"), name=HOSTILE) for _ in range(2)]
    db.execute("UPDATE runs SET error = ?", [HOSTILE])
    db.conn.commit()

    for words in (
        ("runs",),
        ("show", runs[0]),
        ("compare", *runs),
        ("show", HOSTILE),
        ("runs", "--filter", f"name:{HOSTILE}"),
        ("import", HOSTILE.replace("\x00", "")),
        (HOSTILE,),
        ("classify", HOSTILE),
        ("runs", "--limit", HOSTILE),
    ):
        for more in ((), ("--json",)):
            cli(*words, *more)
            assert STEERING.isdisjoint(cli.out + cli.err), words


def test_json_says_the_same_name_by_other_signs(cli: Cli, db: Database) -> None:
    insert_run(db, spec=JobSpec(workload="decode"), name=HOSTILE)
    (run,) = cli.json("runs")["runs"]
    assert run["name"] == HOSTILE


@pytest.mark.parametrize("export", [_markdown, _csv_cell, plain_markdown, escape, _inert_cell])
def test_no_name_turns_or_hides_letters_in_an_export(export: Callable[[str], Any]) -> None:
    shown = str(export(HOSTILE + "\u200bx\u00ady"))
    assert (STEERING | set("\u200b\u00ad")).isdisjoint(shown.replace("\u2060", ""))
    assert "u202e" in shown.replace("\\", "")


def test_drawings_are_sound_xml_whatever_the_name() -> None:
    bar = Bar(name=HOSTILE, kind="kernel", a_ns=1, b_ns=6)
    fall = Waterfall(
        mode="span", per="capture", run_a="a", run_b="b", total_a_ns=1, total_b_ns=6, bars=(bar,)
    )
    drawing = ElementTree.fromstring(waterfall_svg(fall, HOSTILE))
    assert "owned" in "".join(drawing.itertext())


def test_only_what_stands_between_backticks_is_code() -> None:
    assert markdown_with_code("set `a_b=0` in *x*") == "set `a_b=0` in \\*x\\*"
    for text in ("one ` alone", "`` [link](x)", "a `b` c ` d", "plain *x*"):
        assert markdown_with_code(text) == plain_markdown(text)
