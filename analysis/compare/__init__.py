"""Comparison of runs: what differs, is it faster, is it real, and where the time went."""

from analysis.compare.engine import compare
from analysis.compare.gate import Gate, GateAnswer, gate
from analysis.compare.records import (
    Bar,
    Comparison,
    Difference,
    KernelPair,
    Mark,
    MemoryGrowth,
    Pair,
    ScoreRow,
    Side,
    Waterfall,
)

__all__ = [
    "Bar",
    "Comparison",
    "Difference",
    "Gate",
    "GateAnswer",
    "KernelPair",
    "Mark",
    "MemoryGrowth",
    "Pair",
    "ScoreRow",
    "Side",
    "Waterfall",
    "compare",
    "gate",
]
