"""Histories of jobs from the database, for the command line and the pages."""

from collections.abc import Sequence
from statistics import median

from analysis.compare.evaluate import noise_floor_of
from analysis.compare.fields import find_differences
from analysis.compare.metrics import Metric
from analysis.compare.records import Difference
from analysis.history.line import Change, History, make_history
from analysis.pass_clocks import pass_clocks, throttle_reasons
from analysis.runview import Job, RunView
from core.config import DataDir
from core.states import Pass
from db import Database, fetch
from db.history import past_runs

LATENCY = Metric(name="latency", unit="ms")
COMMIT_TAG = "commit:"
"""A tag `commit:ab12cd3` says which commit of the program a run measured."""


def load_history(db: Database, data: DataDir, job: Job) -> History:
    """Return the lines of a job, judged by the noise floor of its newest run's kind of work."""
    runs = past_runs(db, job)
    floor = noise_floor_of(fetch.run_view(db, data, runs[-1].run_id)) if runs else None
    return make_history(job, runs, floor)


def what_changed(db: Database, data: DataDir, change: Change) -> tuple[Difference, ...]:
    """Return what differs between the last run before a change and the first after it."""
    pair = (change.before[-1], change.after[0])
    before, after = fetch.run_views(db, data, pair, leave_out=fetch.NOT_IN_A_STUDY)
    facts_before, facts_after = (_facts(db, view) for view in (before, after))
    differences = [
        Difference(field=name, a=facts_before.get(name), b=facts_after.get(name), effect="noted")
        for name in dict.fromkeys([*facts_before, *facts_after])
        if facts_before.get(name) != facts_after.get(name)
    ]
    known = {difference.field for difference in differences}
    others = find_differences([before], [after], LATENCY)
    return (*differences, *(d for d in others if d.field not in known))


def _facts(db: Database, view: RunView) -> dict[str, str]:
    """Return what a run says besides its settings: commit, driver, clocks, throttling."""
    run = view.run
    commits = [tag.removeprefix(COMMIT_TAG) for tag in run.tags if tag.startswith(COMMIT_TAG)]
    driver = fetch.gpu_facts(db, run.id).get("driver")
    clean = [p for p in pass_clocks(view) if p.pass_name == Pass.CLEAN]
    clocks = [p.sm_clock_mhz.median for p in clean if p.sm_clock_mhz]
    facts: dict[str, str | None] = {
        "commit": ", ".join(commits) or run.environment.get("commit"),
        "driver": str(driver) if driver else None,
        "SM clock": f"{median(clocks):.0f} MHz" if clocks else None,
        "throttled by": ", ".join(throttle_reasons(view)) or ("nothing" if clean else None),
    }
    return {name: value for name, value in facts.items() if value}


def sides(change: Change) -> tuple[Sequence[str], Sequence[str]]:
    """Return the runs of the change's comparison."""
    return change.before, change.after
