"""No page breaks: runs in every state, under any name, and links with anything in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database
from streamlit.testing.v1 import AppTest

from app.ui.widgets import BUG_TEXT
from core.config import DataDir
from core.spec import JobSpec
from core.states import RunStatus
from db.connection import opened
from db.lifecycle import add_events, transition
from db.runs import insert_run
from worker.outcomes import REMEDIES, OutcomeCode

ROOT = Path(__file__).parents[2]
NAMES = (
    "<script>alert(1)</script><b>bold</b>",
    "**bold** _it_ [link](javascript:alert(1)) `code` $x^2$ :material/home: # head",
    "\U0001f680 emoji \u202eright to left\u202c \u0000 null".replace("\u0000", ""),
    "long " * 200,
    "a|b\nc\td, 'quoted' \"twice\" \\ %s {0} &amp;",
    " ",
)
WAYS = {
    RunStatus.QUEUED: (),
    RunStatus.CLAIMED: ("claimed",),
    RunStatus.RUNNING: ("claimed", "running"),
    RunStatus.INGESTING: ("claimed", "running", "ingesting"),
    RunStatus.DONE: ("claimed", "running", "ingesting", "done"),
    RunStatus.OOM: ("claimed", "running", "ingesting", "oom"),
    RunStatus.FAILED: ("claimed", "failed"),
    RunStatus.CANCELLED: ("cancelled",),
    RunStatus.INTERRUPTED: ("claimed", "running", "interrupted"),
}
STRANGE = (
    *("", "0", "-1", "nothing", "1e308", "9" * 400, "<b>x</b>", "' OR 1=1 --", "a,b,,", '"'),
    "\u00e9:\u2603<3",
)
PARAMS = {
    "run": ("run_id", "tab"),
    "runs": ("q", "sort", "columns", "page"),
    "compare": ("a", "b", "metric"),
    "studies": ("name", "filter", "published"),
    "submit": ("workload", "from"),
    "definitions": ("search",),
}


def put(db: Database, name: str, status: RunStatus, **fields: object) -> str:
    spec = JobSpec(workload="decode", params={"batch": 1, "odd": name[:40]}, gpu="cpu")
    run_id = insert_run(db, spec=spec, name=name)
    for step in WAYS[status]:
        assert transition(db, run_id, step, **(fields if step == WAYS[status][-1] else {}))
    return run_id


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the data directory, and id -> what the run is, of one run a state, name and error."""
    data = DataDir(root=tmp_path_factory.mktemp("states")).ensure()
    made: dict[str, str] = {}
    with opened(data.db_path) as db:
        for status in RunStatus:
            oom = {"oom": {"requested_bytes": 2**33, "phase": "forward"}}
            made[put(db, str(status), status, **(oom if status == "oom" else {}))] = str(status)
        for code in OutcomeCode:
            text = f"{code}: {REMEDIES.get(code, '')} <pre>{NAMES[1]}</pre>"
            made[put(db, f"failed by {code}", RunStatus.FAILED, error=text)] = code
        for name in NAMES:
            made[put(db, name, RunStatus.DONE)] = name
            made[put(db, name, RunStatus.QUEUED)] = name
        for run_id in made:
            add_events(db, run_id, [(None, "log", f"{NAMES[0]} {NAMES[1]}")])
    yield str(data.root), made


@pytest.fixture(autouse=True)
def data_of_this_server(
    stored: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", stored[0])


def open_page(page_name: str, **query: str) -> AppTest:
    """Open a page as a browser that has seen nothing yet does."""
    app = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=60)
    app.switch_page(f"page/{page_name}.py")
    for key, value in query.items():
        app.query_params[key] = value
    app.run()
    said = [e.value for e in app.error]
    assert not app.exception and not any(BUG_TEXT in text for text in said), (page_name, query)
    return app


@pytest.mark.parametrize("page", ["overview", "queue", "runs", "compare", "studies", "gpus"])
def test_pages_list_runs_of_every_state_and_name(page: str) -> None:
    open_page(page)


def test_the_page_of_a_run_opens_in_every_state(stored: tuple[str, dict[str, str]]) -> None:
    for run_id in stored[1]:
        open_page("run", run_id=run_id)


def test_names_are_shown_as_they_are(stored: tuple[str, dict[str, str]]) -> None:
    run_id = next(i for i, name in stored[1].items() if name == NAMES[0])
    app = open_page("run", run_id=run_id)
    html = "\n".join(str(e.proto.body) for e in app.get("html"))
    assert "&lt;script&gt;alert(1)" in html and "<script>alert" not in html


def test_unlike_runs_are_compared_or_refused_in_words(stored: tuple[str, dict[str, str]]) -> None:
    ids = list(stored[1])
    for other in ids[1::4]:
        open_page("compare", a=ids[4], b=other)


@pytest.mark.parametrize("page", PARAMS)
def test_a_link_with_anything_in_it_is_answered_in_words(page: str) -> None:
    for i, key in enumerate(PARAMS[page]):
        for value in STRANGE[i % 2 :: 2]:
            open_page(page, **{key: value})
