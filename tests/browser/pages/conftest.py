"""The example data on the dashboard."""

from pathlib import Path
from typing import Any

import pytest

from core.config import DataDir
from db.connection import opened
from db.runs import delete_runs
from tests.browser import steps


@pytest.fixture(scope="package")
def examples(context: Any, dashboard: str, dashboard_data: Path) -> None:
    """Load the example data, which is one press away where the dashboard is empty."""
    with opened(DataDir(root=dashboard_data).db_path) as db:
        steps.wait_for_jobs(db)
        delete_runs(db, [run_id for (run_id,) in db.execute("SELECT id FROM runs").fetchall()])
    page = context.new_page()
    page.goto(f"{dashboard}/")
    with steps.presses_at_most(page, 1):
        page.get_by_role("button", name="Load the example data").click()
        page.get_by_role("heading", name="Newest runs").wait_for()
    page.close()
