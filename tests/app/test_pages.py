"""Every page, on real captures and on an empty database: no exception, and the answer is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.imports import import_paths
from app.ui import data
from app.ui.runs_table import rows_key
from app.ui.widgets import BUG_TEXT
from core.config import data_dir

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "tests/data/h100"
TABS = (
    "Kernels",
    "Advice",
    "Phases",
    "Timeline",
    "Memory",
    "API and transfers",
    "Counters and roofline",
    "Samples",
    "Environment",
    "Files",
    "Reproduce",
)
PAGES = (
    "overview",
    "submit",
    "queue",
    "runs",
    "compare",
    "studies",
    "advice",
    "trends",
    "gpus",
    "import_",
    "definitions",
)
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("pages")
    files = {
        "eager": (["nsys/decode_eager.sqlite", "ncu/decode_eager.raw.csv"], "none"),
        "autotune": (["nsys/decode_max_autotune.sqlite"], "max-autotune"),
        "memory": (["memory/train_oom.pickle"], None),
    }
    made = {"data": str(folder)}
    for name, (paths, mode) in files.items():
        params = {"workload": "decode", "compile": mode} if mode else {}
        found = import_paths(
            data_dir(folder), [CAPTURES / p for p in paths], name=name, params=params
        )
        made[name] = found.run_id
    yield made


def open_page(monkeypatch: pytest.MonkeyPatch, folder: str, name: str, **query: str) -> AppTest:
    monkeypatch.setenv("WARPBOARD_DATA", folder)
    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=TIMEOUT_S)
    at.run()
    at.switch_page(f"page/{name}.py")
    for key, value in query.items():
        at.query_params[key] = value
    at.run()
    assert not any(BUG_TEXT in e.value for e in at.error)
    return at


def texts(at: AppTest) -> str:
    parts = [
        *at.markdown,
        *at.caption,
        *at.error,
        *at.warning,
        *at.info,
        *at.text,
        *at.code,
        *at.title,
    ]
    html = [str(e.proto.body) for e in at.get("html")]
    return "\n".join([*(str(p.value) for p in parts), *html])


@pytest.mark.parametrize("page", PAGES)
def test_page_opens_on_an_empty_database(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), page)
    assert not at.exception


@pytest.mark.parametrize("page", PAGES)
def test_page_opens_on_example_runs(
    page: str, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], page)
    assert not at.exception


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("name", ["eager", "memory"])
def test_every_tab_of_a_run_opens(
    tab: str, name: str, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "run", run_id=runs[name], tab=tab)
    assert not at.exception and not at.error


def test_run_page_shows_the_numbers_of_the_capture(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "run", run_id=runs["eager"])
    shown = {m.label: m.value for m in at.metric}
    assert shown["GPU busy"] == "18.3\u00a0%"
    assert shown["GEMM fraction"] == "76.1\u00a0%"
    assert shown["Kernel time / step"] == "437\u00a0\u00b5s"
    assert "MFU" not in shown  # what is not known is not a tile, but is said with its reason
    told = [c.value.replace("\\", "") for c in at.caption]
    assert any("MFU, MBU (no cost model for this run)" in text for text in told)


def test_a_fault_of_a_page_is_one_sentence_and_in_the_log(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", runs["data"])
    monkeypatch.setattr("db.status.queue", lambda db: 1 / 0)
    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=TIMEOUT_S)
    at.run().switch_page("page/queue.py").run()
    assert BUG_TEXT in at.error[0].value and "ZeroDivisionError" in caplog.text


def test_an_unknown_run_is_one_plain_message(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "run", run_id="nothing")
    assert not at.exception
    assert "nothing" in at.error[0].value and len(at.error) == 1


def test_out_of_memory_is_shown_as_a_result(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "run", run_id=runs["memory"])
    assert "Out of memory" in texts(at) and "a result" in texts(at)


def test_a_filter_error_points_at_its_place(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "runs", q='gpu:H100 "open')
    assert not at.exception
    assert at.code[0].value == 'gpu:H100 "open\n         ^'


def test_a_filter_in_the_link_chooses_the_rows(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "runs", q="compile:max-autotune")
    assert at.dataframe[0].value["name"].to_list() == ["autotune"]


def test_a_compare_link_names_what_differs_before_any_ratio(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "compare", a=runs["eager"], b=runs["autotune"])
    assert not at.exception
    assert "compile none" in texts(at).replace("\\", "")
    assert at.selectbox(key="choice_metric").value == "profiled_iteration"
    assert any("No clean pass on either side" in c.value for c in at.caption)
    assert "Profiled iteration 68.4 % lower" in texts(at) and "not decided" in texts(at)


def test_a_link_that_asks_for_a_latency_nobody_measured_says_what_both_sides_have(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {"a": runs["eager"], "b": runs["autotune"]}
    at = open_page(monkeypatch, runs["data"], "compare", **sides, metric="latency")
    assert not at.exception
    assert "Not enough samples" in texts(at)
    assert "compare what both have: profiled_iteration, span, kernel_time" in texts(at)


def test_several_measurements_stand_in_a_table_and_one_of_them_is_explained(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = f"{runs['memory']},{runs['autotune']}"
    at = open_page(monkeypatch, runs["data"], "compare", a=runs["eager"], b=others)
    assert not at.exception
    assert "2 measurements against the first" in [s.value for s in at.subheader]
    at.selectbox(key="choice_pair").set_value(runs["autotune"]).run()
    assert not at.exception
    assert "Profiled iteration 68.4 % lower" in texts(at)


def test_a_wide_sweep_counts_jobs_and_shows_the_command(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "submit", workload="decode")
    at.multiselect(key="field_decode_compile").set_value(["none", "default"]).run()
    at.multiselect(key="field_decode_batch").set_value(["1", "2", "4"]).run()
    assert at.subheader[0].value.startswith("6 jobs")
    assert "--set batch=1,2,4 --set compile=none,default" in at.code[0].value


def test_a_combination_that_cannot_run_is_named_and_left_out(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "submit", workload="decode")
    at.multiselect(key="field_decode_compile").set_value(["none", "max-autotune"]).run()
    at.multiselect(key="field_decode_cuda_graph").set_value(["on"]).run()
    assert "1 job" in at.subheader[0].value and "1 not possible" in at.subheader[0].value
    assert "cuda_graph" in at.dataframe[0].value["note"].iloc[1]


def test_empty_overview_offers_the_example_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "overview")
    assert [b.label for b in at.button][:2] == ["Load the example data", "Submit a first run"]


def test_run_again_fills_the_form_from_the_run(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "submit", **{"from": runs["autotune"]})
    assert not at.exception and not at.error
    assert at.multiselect(key="field_decode_compile").value == ["max-autotune"]


def test_a_cap_below_the_estimate_is_likely_out_of_memory(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, runs["data"], "submit", workload="attention")
    at.multiselect(key="field_attention_seq_len").set_value(["64", "32768"]).run()
    at.multiselect(key="field_attention_memory_cap_gib").set_value(["8"]).run()
    assert "1 likely out of memory" in at.subheader[0].value
    assert at.dataframe[0].value["note"].to_list() == ["", "likely OOM"]


def test_rows_chosen_in_one_list_are_not_chosen_in_another(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [runs["eager"], runs["autotune"]]
    assert rows_key(ids) == rows_key(list(ids)) != rows_key(ids[::-1])
    at = open_page(monkeypatch, runs["data"], "runs", q="name:eager")
    at.session_state[f"runs_{rows_key([runs['eager']])}"] = {"selection": {"rows": [0]}}
    at.run()
    assert "**1 chosen**" in [m.value for m in at.markdown]
    at.text_input(key="q").set_value("name:autotune").run()
    assert at.dataframe[0].value["name"].to_list() == ["autotune"]
    assert "**1 chosen**" not in [m.value for m in at.markdown]


def test_a_link_to_a_later_page_shows_that_page(
    runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", runs["data"])
    frame, _ = data.list_runs()
    offsets: list[int] = []

    def listed(query: str = "", *, offset: int = 0, **options: object) -> object:
        offsets.append(offset)
        return frame, 1000

    monkeypatch.setattr(data, "list_runs", listed)
    open_page(monkeypatch, runs["data"], "runs", page="5")
    assert max(offsets) == 400
