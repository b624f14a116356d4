"""What a column of a table holds decides how it looks."""

from typing import Any

import pandas as pd
import pytest

from app.ui import tables
from app.ui.tables import KERNEL_CHARS, show_table


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Keep what the table hands to Streamlit."""
    kept: dict[str, Any] = {}

    def dataframe(frame: pd.DataFrame, **options: Any) -> None:
        kept.update(options, frame=frame)

    monkeypatch.setattr(tables.st, "dataframe", dataframe)
    return kept


def _formats(drawn: dict[str, Any]) -> dict[str, str | None]:
    looks = drawn["column_config"]
    return {name: (look["type_config"] or {}).get("format") for name, look in looks.items()}


def test_numbers_line_up_at_the_decimals_they_need(drawn: dict[str, Any]) -> None:
    frame = pd.DataFrame(
        {
            "kernel ms": [12.3456, 0.5],
            "mean \u00b5s": [0.123456, 20.0],
            "launches": [3.0, None],
            "share %": [33.333, 66.667],
            "difference \u00b5s": [-1.5, 2.25],
            "error %": [-3.0, 4.0],
        }
    )

    show_table(frame)

    assert _formats(drawn) == {
        "kernel ms": "%.2f",
        "mean \u00b5s": "%.2f",
        "launches": "%.0f",
        "share %": "%.1f",
        "difference \u00b5s": "%+.2f",
        "error %": "%+.1f",
    }


def test_text_stands_right_where_every_cell_is_a_number(drawn: dict[str, Any]) -> None:
    frame = pd.DataFrame(
        {
            "size": ["2.88\u00a0GB", "\u2014"],
            "change": ["+3.2 %", "\u22120.5 %"],
            "grid": ["128,1,1", "1,1,1"],
            "age": ["3\u00a0h ago", "just now"],
            "name": ["7b", "decode"],
        }
    )

    show_table(frame)

    sides = {name: look["alignment"] for name, look in drawn["column_config"].items()}
    assert sides == {"size": "right", "change": "right", "grid": None, "age": None, "name": None}


def test_kernel_names_are_cut_where_they_do_not_differ_and_stand_whole_at_the_end(
    drawn: dict[str, Any],
) -> None:
    names = [f"void {'tile_' * 20}kernel<{n}, float>(float*)" for n in (64, 128)]

    show_table(pd.DataFrame({"kernel": names, "count": [1, 2], "category": ["gemm", "copy"]}))

    frame = drawn["frame"]
    assert frame["full name"].to_list() == names and frame.columns[-1] == "full name"
    assert frame["kernel"].nunique() == 2 and frame["kernel"].str.len().max() <= KERNEL_CHARS
    assert frame["category"].to_list() == [["gemm"], ["copy"]]


def test_a_column_of_its_own_look_keeps_it(drawn: dict[str, Any]) -> None:
    own = tables.st.column_config.NumberColumn(format="%.5f")

    show_table(pd.DataFrame({"a": [0.5], "b": [0.5]}), columns={"a": own}, helps={"b": "half"})

    assert drawn["column_config"]["a"] == own
    assert drawn["column_config"]["b"]["help"] == "half"


def test_a_long_table_scrolls_and_a_short_one_takes_its_own_height(drawn: dict[str, Any]) -> None:
    show_table(pd.DataFrame({"a": range(100)}), most_px=300)
    assert drawn["height"] == 300

    show_table(pd.DataFrame({"a": range(2)}), most_px=300)
    assert drawn["height"] < 120
