"""Messages of ncu: which kernel they are about, and which are worth most for the whole run."""

import math

import pandas as pd

from app.ui.run.counters import longest_names, ranked_rules


def test_messages_name_their_kernel_and_come_by_gain_times_share() -> None:
    rules = pd.DataFrame(
        [
            (0, "void tiny<1>()", "Occupancy", "OPT", "Est. 90 % of 12 warps", 90.0),
            (1, "void big<2>()", "Occupancy", "OPT", "Est. 20 % of 48 warps", 20.0),
            (2, "void big<2>()", "Occupancy", "OPT", "Est. 10 % of 48 warps", 10.0),
            (1, "void big<2>()", "SOL", "INF", "busy", math.nan),
        ],
        columns=["launch", "kernel", "rule", "kind", "message", "estimated_speedup_pct"],
    )
    counters = pd.DataFrame(
        {"name": ["void tiny<1>()", "void big<2>()"], "short_name": ["tiny", "big"]}
    )
    kernels = pd.DataFrame({"short_name": ["tiny", "big", "big"], "total_ns": [10, 80, 10]})

    ranked = ranked_rules(rules, counters, kernels)

    assert ranked["kernel"].tolist() == ["big", "tiny", "big"]
    assert ranked["gain"].round(6).tolist()[:2] == [18.0, 9.0]
    assert ranked["launches"].tolist() == [2, 1, 1]
    assert ranked["share_frac"].round(6).tolist() == [0.9, 0.1, 0.9]


def test_kernel_that_the_timeline_does_not_know_has_no_share() -> None:
    rules = pd.DataFrame(
        [(0, "k", "Occupancy", "OPT", "m", 5.0)],
        columns=["launch", "kernel", "rule", "kind", "message", "estimated_speedup_pct"],
    )

    ranked = ranked_rules(
        rules,
        pd.DataFrame({"name": ["k"], "short_name": ["k"]}),
        pd.DataFrame({"short_name": ["other"], "total_ns": [1]}),
    )

    assert ranked["share_frac"].isna().all()


def test_messages_link_to_the_instance_of_their_kernel_that_takes_most_time() -> None:
    kernels = pd.DataFrame(
        {
            "short_name": ["big", "big", "big", "tiny"],
            "name": ["big<1>", "big<2>", "big<1>", "tiny"],
            "total_ns": [40, 70, 40, 5],
        }
    )

    assert longest_names(kernels) == {"big": "big<1>", "tiny": "tiny"}
