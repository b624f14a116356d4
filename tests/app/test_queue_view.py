"""Progress as a share and in words."""

import pandas as pd

from app.ui.queue_view import nobody_serves, progress_of


def test_progress_counts_finished_steps_and_the_present_one() -> None:
    progress = {"pass": "clean", "step": 1, "num_steps": 4, "stage": "measure"}
    found = progress_of(progress | {"done": 6, "total": 12}, "running")
    assert found == (0.425, "clean pass, measuring 6 of 12, step 2 of 4")


def test_the_bar_never_goes_back_within_a_pass_and_warming_up_does_not_fill_it() -> None:
    stages = [("start", 0, 1), ("build", 0, 1), ("warmup", 0, 2), ("warmup", 2, 2)]
    stages += [("measure", 0, 9), ("measure", 9, 9)]
    shares = [
        progress_of({"stage": s, "done": d, "total": t, "step": 0, "num_steps": 1}, "running")[0]
        for s, d, t in stages
    ]
    assert shares == sorted(shares)
    assert shares[3] < 0.5 and shares[-1] == 1.0


def test_progress_without_a_report_says_the_state_and_claims_nothing() -> None:
    assert progress_of({}, "claimed") == (0.0, "claimed")


def test_reading_the_captures_is_the_last_step() -> None:
    assert progress_of({"step": 0, "num_steps": 2}, "ingesting") == (1.0, "reading the captures")


def test_model_and_gpu_that_nobody_serves_are_told_apart() -> None:
    rows = [(False, None), (False, "H100@node1:0"), (False, "H100@node1:0"), (True, None)]
    model, device = nobody_serves("H100", pd.DataFrame(rows, columns=["has_worker", "device_name"]))
    assert "No worker serves H100 now" in model
    assert "The worker of H100@node1:0 is gone: 2 runs wait" in device
