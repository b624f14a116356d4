"""The Submit page: what it starts with, and what it says of a sweep's cells."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.submit import plan_jobs, resolve_gpus, submit_jobs
from core.config import DataDir
from db.connection import opened
from tests.app.test_pages import open_page, texts

SEQ_LEN = "field_attention_seq_len"


@pytest.fixture
def swept(tmp_path: Path) -> str:
    """A database whose newest sweep is attention over two lengths on the CPU."""
    folder = DataDir(root=tmp_path).ensure()
    with opened(folder.db_path) as db:
        jobs = plan_jobs(
            "attention",
            {"seq_len": ["64", "128"], "implementation": ["sdpa"]},
            resolve_gpus(db, "cpu"),
            profilers=("memory",),
            repeats=2,
        )
        submit_jobs(db, folder, jobs)
    return str(tmp_path)


def test_the_values_of_the_last_sweep_come_back(
    swept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, swept, "submit")
    assert at.selectbox(key="choice_workload").value == "attention"
    assert at.multiselect(key=SEQ_LEN).value == ["64", "128"]
    assert at.multiselect(key="field_attention_implementation").value == ["sdpa"]
    assert at.multiselect(key="field_attention_preset").value == []
    assert at.multiselect(key="field_attention_heads").value == []
    assert at.number_input(key="repeats").value == 2
    assert "Filled in as it was last submitted" in texts(at).replace("\\", "")
    assert at.subheader[0].value.startswith("2 jobs")


def test_start_afresh_returns_to_the_defaults(swept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_page(monkeypatch, swept, "submit")
    next(b for b in at.button if b.label == "Start afresh").click().run()
    assert at.multiselect(key=SEQ_LEN).value == []
    assert at.number_input(key="repeats").value == 3
    assert at.number_input(key="repeats").proto.set_value  # a browser keeps its own otherwise
    assert "last submitted" not in texts(at)


def test_a_value_is_still_there_when_the_page_is_opened_again(
    swept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, swept, "submit")
    at.multiselect(key=SEQ_LEN).set_value(["256"]).run()
    at.switch_page("page/gpus.py").run()
    at.switch_page("page/submit.py").run()
    assert at.multiselect(key=SEQ_LEN).value == ["256"]


def test_jobs_that_are_no_product_bring_back_the_first_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataDir(root=tmp_path).ensure()
    with opened(folder.db_path) as db:
        target = resolve_gpus(db, "cpu")
        jobs = [
            *plan_jobs("attention", {"seq_len": ["128"], "batch": ["2"]}, target),
            *plan_jobs("attention", {"seq_len": ["256"], "batch": ["4"]}, target),
        ]
        submit_jobs(db, folder, jobs)
    at = open_page(monkeypatch, str(tmp_path), "submit")
    assert at.multiselect(key=SEQ_LEN).value == ["128"]
    assert at.multiselect(key="field_attention_batch").value == ["2"]


def test_a_sweep_over_sizes_shows_and_names_no_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "submit", workload="attention")
    at.multiselect(key=SEQ_LEN).set_value(["64", "128"]).run()
    shown = at.dataframe[0].value
    assert "preset" not in shown.columns
    assert shown["seq_len"].to_list() == ["64", "128"]

    folder = DataDir(root=tmp_path).ensure()
    with opened(folder.db_path) as db:
        jobs = plan_jobs("attention", {"seq_len": ["64", "128"]}, resolve_gpus(db, "cpu"))
        assert [job.params["preset"] for job in jobs] == ["tiny", "custom"]
        found = submit_jobs(db, folder, jobs)
        names = [r[0] for r in db.execute("SELECT name FROM runs ORDER BY position")]
    assert len(found.run_ids) == 2
    assert [n.replace("seq_len=64", "seq_len=128") for n in names] == [names[1]] * 2
    assert "preset" not in " ".join(names)


def test_the_estimate_stands_before_the_button(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "submit", workload="attention")
    drawn = [element.type for element in walk(at.main)]
    last_button = len(drawn) - 1 - drawn[::-1].index("button")
    assert drawn.index("dataframe") < last_button


def walk(block: Any) -> Iterator[Any]:
    """Yield the elements of a page in the order in which they are shown."""
    for child in block.children.values():
        if hasattr(child, "children"):
            yield from walk(child)
        else:
            yield child
