"""Experiments of runs and the score of predictions, as pages read them."""

from typing import Any

import streamlit as st

from app.ui.cached import database, until_changed
from core.config import data_dir
from db import fetch


@until_changed(st.cache_data, max_entries=48)
def _experiments(run_id: str) -> dict[str, Any]:
    from app.advice import advice_of_several

    with database() as db:
        (advice,) = advice_of_several(db, data_dir(), [run_id])
    return advice


def fetch_advice(run_id: str) -> dict[str, Any]:
    """Return the experiments of a run (`app.advice.advice_of`); why none can be queued is new."""
    from app.advice import why_not_tried

    advice = _experiments(run_id)
    with database() as db:
        return advice | {"not_tried": why_not_tried(db, fetch.run_row(db, run_id))}


@st.cache_data(ttl=900, max_entries=2, show_spinner="Predicting every measured pair")
def _score(key: int) -> dict[str, Any]:
    from app.score import score_document

    with database() as db:
        return score_document(db, data_dir())


def fetch_score() -> dict[str, Any]:
    """Return the score of all predictions; it is new where runs or predictions are."""
    from db.predictions import score_stamp

    with database() as db:
        return _score(score_stamp(db))


@st.cache_resource(ttl=900, max_entries=16, show_spinner=False)
def _advice_lately(run_ids: tuple[str, ...], place: str) -> list[dict[str, Any]]:
    from app.advice import advice_of_several

    with database() as db:
        return advice_of_several(db, data_dir(), run_ids)


def fetch_advice_lately(run_ids: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the experiments of runs, at most 15 minutes old: for a page that lists many."""
    return _advice_lately(run_ids, str(data_dir().db_path))
