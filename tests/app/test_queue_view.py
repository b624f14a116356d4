"""Progress as a share and in words."""

from app.ui.queue_view import progress_of


def test_progress_counts_finished_steps_and_the_present_one() -> None:
    progress = {"pass": "clean", "step": 1, "num_steps": 4, "stage": "measure"}
    found = progress_of(progress | {"done": 6, "total": 12}, "running")
    assert found == (0.375, "clean pass, measuring 6 of 12, step 2 of 4")


def test_progress_without_a_report_says_the_state_and_claims_nothing() -> None:
    assert progress_of({}, "claimed") == (0.0, "claimed")


def test_reading_the_captures_is_the_last_step() -> None:
    assert progress_of({"step": 0, "num_steps": 2}, "ingesting") == (1.0, "reading the captures")
