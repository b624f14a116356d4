"""The memory tab shows the steps, and shows live memory at the peak by role."""

import pandas as pd

from app.ui.run.memory import _bands, role_sums, steps_window


def points(times: list[int], phases: list[str | None]) -> pd.DataFrame:
    return pd.DataFrame({"time_ns": times, "phase": phases})


def test_a_long_start_up_is_left_out_of_the_first_view() -> None:
    shown = points([0, 1_000, 900_000, 950_000, 999_000], [None, None, "forward", "backward", None])
    start, end = steps_window(shown)
    assert (start, end) == (900_000 - 1_000, 950_000 + 1_000)


def test_a_recording_of_steps_alone_is_shown_whole() -> None:
    assert steps_window(points([0, 50, 1_000], ["forward", "backward", "optimizer"])) == (0, 1_000)
    assert steps_window(points([0, 50, 1_000], [None, None, None])) == (0, 1_000)


def test_roles_add_up_and_what_has_none_says_so() -> None:
    sites = pd.DataFrame(
        {
            "role": ["gradients", None, "parameters", "gradients"],
            "bytes": [5, 1, 7, 4],
            "count": [1, 1, 2, 1],
        }
    )
    found = role_sums(sites)
    assert found["role"].tolist() == ["gradients", "parameters", "not known"]
    assert found["bytes"].sum() == 17


def test_frees_without_a_phase_do_not_cut_the_band_they_lie_in() -> None:
    curve = points(
        [0, 10, 20, 30, 40, 50, 60],
        [None, "forward", None, "forward", None, "backward", None],
    )
    assert _bands(curve) == [("forward", 10, 30), ("backward", 50, 50)]
