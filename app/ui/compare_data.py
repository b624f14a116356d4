"""Comparisons: their sides, their metrics, those that the runs offer, as pages read them."""

from typing import TYPE_CHECKING, Any

import streamlit as st

from analysis.compare.offered import MeasuredRun, Offer, offers
from app.ui.cached import database, until_changed
from app.ui.data import fetch_views
from core.errors import AppError
from db import history, runs
from db.history import Begun

if TYPE_CHECKING:
    from analysis.compare.labels import RanOn


@until_changed(st.cache_data, max_entries=4)
def begun_comparisons() -> list[Begun]:
    """Return the newest comparisons begun by running two jobs alternately."""
    with database() as db:
        return history.begun_comparisons(db)


MAX_OFFERED_FROM = 400


@until_changed(st.cache_data, max_entries=4)
def offered_comparisons(limit: int = 12) -> tuple[Offer, ...]:
    """Return the groups of stored runs that differ in one field."""
    with database() as db:
        rows = runs.list_rows(db, "status:done", limit=MAX_OFFERED_FROM)
    measured = [
        MeasuredRun(
            run_id=row["id"],
            workload=row["workload"],
            gpu_model=row.get("gpu_model", ""),
            params=row["params"],
        )
        for row in rows
        if row.get("workload")
    ]
    return offers(measured, limit=limit)


def resolve_side(text: str) -> tuple[str, ...]:
    """Return the runs of one side: ids or names with commas between, or a filter; UserError."""
    with database() as db:
        return tuple(runs.resolve_runs(db, text))


def resolve_sides(a: str, b: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the runs of both sides; side A may be `last:N`, good runs of B's job. UserError."""
    side_b = resolve_side(b)
    with database() as db:
        return tuple(history.resolve_base(db, a, side_b)), side_b


@until_changed(st.cache_resource, max_entries=32, show_spinner="Comparing")
def fetch_comparison(a: tuple[str, ...], b: tuple[str, ...], metric: str) -> Any:
    """Return the comparison of two sides (analysis.compare.Comparison); UserError."""
    from analysis.compare import compare

    return compare(fetch_views(a), fetch_views(b), metric=metric)


def metric_names(a: str, b: str) -> "tuple[list[str], RanOn]":
    """Return the metrics that both sides have, and where these ran.

    The most telling metric is first; latency is last where a side has none. What is stored a second
    time under another name (`kernel_time_ns`) is left out.
    """
    try:
        ids = (
            resolve_sides(a, b) if a and b else tuple(resolve_side(text) for text in (a, b) if text)
        )
        return _metric_names(ids)
    except AppError:
        return ["latency"], "gpu"


@until_changed(st.cache_data, max_entries=64)
def _metric_names(ids: tuple[tuple[str, ...], ...]) -> "tuple[list[str], RanOn]":
    from analysis.compare.labels import device_of
    from analysis.compare.metrics import common
    from analysis.definitions import COMPARED

    sides = [fetch_views(side) for side in ids]
    names = common(*sides) if len(sides) == 2 else []
    again = {definition.key for definition in COMPARED.values()} - set(COMPARED)
    names = [n for n in names if n not in again and not n.startswith("latency_")]
    device = device_of([view for side in sides for view in side])
    return names if "latency" in names else [*names, "latency"], device
