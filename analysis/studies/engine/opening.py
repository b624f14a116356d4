"""The runs that a study opens with: one grid, and not every variation of it that was ever run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.runview import RunView
from analysis.studies.engine.cells import allowed
from analysis.studies.engine.fields import NOT_FIELDS, fields_of, implied_by
from analysis.studies.engine.records import Study
from core.numbers import value_text

_OF_RANKS = frozenset({"scaling", "profiled_ranks"})
"""Follow from how many ranks there are."""


def taking_part(study: Study, views: Sequence[RunView]) -> list[RunView]:
    """Return the runs that a table of the study may show."""
    known = [(view, fields_of(view)) for view in views]
    return [
        view
        for view, fields in known
        if any(
            allowed(fields, study.filters, t.where) and all(fields.get(n) for n in t.needs)
            for t in study.tables
        )
    ]


def one_grid(study: Study, views: Sequence[RunView]) -> tuple[list[RunView], dict[str, list[str]]]:
    """Return the runs that differ, workload by workload, in what the study lays out alone.

    Of each other parameter the value of the study's own job stays, else the one that most runs
    have; runs without the parameter stay. With them, which values of which parameters stayed where
    there were several.
    """
    by_workload: dict[str, list[RunView]] = {}
    for view in views:
        by_workload.setdefault(view.run.workload or "", []).append(view)
    kept: set[str] = set()
    fixed: dict[str, list[str]] = {}
    for workload, group in by_workload.items():
        seed = study.job.get("params") or {} if study.job.get("workload") == workload else {}
        mine, values = _grid(group, _others(study), {k: value_text(v) for k, v in seed.items()})
        kept |= {view.run.id for view in mine}
        for name, value in values.items():
            fixed.setdefault(name, []).append(value)
    return [view for view in views if view.run.id in kept], fixed


def _others(study: Study) -> frozenset[str]:
    """Return the parameters that make no grid: laid out, implied, or no setting of the work."""
    laid_out = {name for table in study.tables for name in (*table.rows, *table.columns)}
    ranks = _OF_RANKS | {"gpus"} if "ranks" in laid_out else _OF_RANKS
    return frozenset(laid_out | implied_by(laid_out) | NOT_FIELDS | ranks)


def _grid(
    views: Sequence[RunView], skipped: frozenset[str], seed: Mapping[str, str]
) -> tuple[list[RunView], dict[str, str]]:
    texts = [_texts(view.run.params, skipped) for view in views]
    stated = Counter(name for text in texts for name in text)
    rest = list(zip(views, texts, strict=True))
    fixed: dict[str, str] = {}
    for name, _ in sorted(stated.items(), key=lambda item: (-item[1], item[0])):
        counts = Counter(text[name] for _, text in rest if name in text)
        if len(counts) < 2:
            continue
        most = min(counts, key=lambda value: (-counts[value], value))
        fixed[name] = seed[name] if seed.get(name) in counts else most
        rest = [(v, text) for v, text in rest if text.get(name, fixed[name]) == fixed[name]]
    return [view for view, _ in rest], fixed


def _texts(params: Mapping[str, Any], skipped: frozenset[str]) -> dict[str, str]:
    return {k: value_text(v) for k, v in params.items() if v is not None and k not in skipped}
