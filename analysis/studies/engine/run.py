"""Find the studies, the grid of runs that one opens with, and run it on them."""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pandas as pd

import analysis.studies as package
from analysis.runview import RunView
from analysis.studies.engine.cells import CELL_COLUMNS, MEASURED, allowed, make_frame
from analysis.studies.engine.fields import NOT_FIELDS, OF_MODEL, fields_of, implied_by
from analysis.studies.engine.fits import fit_table
from analysis.studies.engine.pivots import make_pivot
from analysis.studies.engine.readings import latency
from analysis.studies.engine.records import Pivot, Study, StudyTable, Table
from analysis.studies.publications import STUDIES as PUBLICATIONS
from core.errors import UserError
from core.numbers import decimal, value_text
from core.spec import canonical_json

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


FAR_FRAC = 0.1
"""Runs of one cell whose latencies differ by more are named."""
PUBLISHED_NOTE = "Rows marked published are figures of others, as printed there; source: {names}."
DERIVED_NOTE = "Ratios in published rows are made from the published figures of the same source."


@cache
def list_studies() -> tuple[Study, ...]:
    """Return every module's STUDY, and the publications; those of ours first, each by name."""
    studies = list(PUBLICATIONS)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg and module.name != "publications":
            study = importlib.import_module(f"{package.__name__}.{module.name}").STUDY
            assert study.name.replace("-", "_") == module.name, module.name
            studies.append(study)
    return tuple(sorted(studies, key=lambda s: (s.is_publication, s.name)))


def find_study(name: str) -> Study:
    """Return the study of this name; UserError names those there are."""
    for study in list_studies():
        if study.name == name:
            return study
    names = ", ".join(s.name for s in list_studies())
    raise UserError(f"study: {name!r} is not one of {names}")


def run_study(name: str, views: Sequence[RunView], *, published: bool = False) -> StudyTable:
    """Lay the runs out as the study says; with `published`, others' figures beside them.

    Cells are ok, oom (a result: the job ran out of memory) or missing; a missing cell of ours
    carries the job that would fill it. UserError for an unknown name.
    """
    study = find_study(name)
    mine = [v for v in views if allowed(fields_of(v), study.filters)]
    frame = make_frame(study, mine, published=published)
    pivots = tuple(make_pivot(table, frame, mine) for table in study.tables)
    fits = tuple(row for table in study.tables for row in fit_table(table, frame))
    return StudyTable(
        study=study,
        frame=frame,
        pivots=pivots,
        fits=fits,
        jobs=_jobs(study, pivots),
        notes=(
            *_notes(study, published=published),
            *_fixed(study, frame, pivots),
            *_left_out(study, mine),
            *_disagreeing(frame, mine),
        ),
    )


def _fixed(study: Study, frame: pd.DataFrame, pivots: Sequence[Pivot]) -> Iterator[str]:
    """State the fields that all measured rows of a table share but no row or column shows."""
    titles_of: dict[str, list[str]] = {}
    for table, pivot in zip(study.tables, pivots, strict=True):
        ours = frame[(frame["table"] == table.title) & (frame["from"] == MEASURED)]
        laid_out = {*pivot.row_fields, *table.columns, *CELL_COLUMNS, "workload"}
        implied = OF_MODEL if ours.get("model", pd.Series(dtype=str)).any() else frozenset()
        names = [name for name in ours if name not in laid_out | implied]
        fixed = [n for n in names if ours[n].nunique() == 1 and ours[n].iloc[0]]
        if fixed:
            shown = ", ".join(f"{n.replace('_', ' ')} {ours[n].iloc[0]}" for n in fixed)
            titles_of.setdefault(shown, []).append(table.title)
    for shown, titles in titles_of.items():
        where = "in all tables" if len(titles) == len(study.tables) > 1 else "; ".join(titles)
        lead = "Fixed" if len(study.tables) == 1 else f"Fixed ({where})"
        yield f"{lead}: every measured row has {shown}."


def drawn_cells(name: str, views: Sequence[RunView]) -> Iterator[tuple[Table, pd.DataFrame]]:
    """Yield each table of a study with the tidy cells of the value that it is drawn by.

    Published ones are beside.
    """
    study = find_study(name)
    mine = [v for v in views if allowed(fields_of(v), study.filters)]
    for table in study.tables:
        key = table.chart.value if table.chart else table.values[0].key
        drawn = replace(table, values=tuple(v for v in table.values if v.key == key))
        yield table, make_frame(replace(study, tables=(drawn,)), mine, published=True)


def _left_out(study: Study, views: Sequence[RunView]) -> Iterator[str]:
    """State the fields each table filters by, and how many measured runs that leaves out."""
    for table in study.tables:
        fixed = {k: v for k, v in table.where.items() if k != "workload"}
        if not fixed:
            continue
        shown = ", ".join(f"{name} {' or '.join(values)}" for name, values in fixed.items())
        of_work = {k: v for k, v in table.where.items() if k == "workload"}
        fields_of_runs = [f for v in views if allowed(f := fields_of(v), of_work)]
        num_other = sum(not allowed(f, fixed) for f in fields_of_runs)
        more = f"; {num_other} of our runs differ in it and are left out" if num_other else ""
        yield f"{table.title}: {shown}{more}."


def _disagreeing(frame: pd.DataFrame, views: Sequence[RunView]) -> Iterator[str]:
    """Name cells that average runs with very different latencies."""
    by_id = {view.run.id: view for view in views}
    seen: set[tuple[str, ...]] = set()
    for ids in frame["run_ids"]:
        if len(ids) < 2 or tuple(ids) in seen:
            continue
        seen.add(tuple(ids))
        known = {i: ms for i in ids if (ms := latency(by_id[i], "median")) is not None}
        if len(known) > 1 and max(known.values()) > (1 + FAR_FRAC) * min(known.values()):
            each = ", ".join(f"{by_id[i].run.name} {decimal(ms)} ms" for i, ms in known.items())
            yield f"One cell of several runs that lie far apart: {each}."


def _jobs(study: Study, pivots: Sequence[Pivot]) -> tuple[Mapping[str, Any], ...]:
    """Return the jobs of the missing cells; without a cell of ours, the study's first job."""
    cells = [c for pivot in pivots for row in pivot.cells for c in row]
    if not any(c.provenance == MEASURED for c in cells):
        return (study.job,) if study.job else ()
    jobs: dict[str, Mapping[str, Any]] = {}
    for cell in cells:
        if cell.job is not None:
            job = {**cell.job, "profilers": _profilers(study, cell.job)}
            jobs.setdefault(canonical_json(job), job)
    return tuple(jobs.values())


def _profilers(study: Study, job: Mapping[str, Any]) -> list[str]:
    """Return the job's profilers and those that the study needs."""
    return list(dict.fromkeys([*job["profilers"], *study.job.get("profilers", [])]))


def _notes(study: Study, *, published: bool) -> tuple[str, ...]:
    sources = list(dict.fromkeys(s for table in study.tables for s in table.sources))
    if not published or not sources:
        return ()
    has_ratio = any(v.relative_to for table in study.tables for v in table.values)
    note = PUBLISHED_NOTE.format(names=", ".join(sources))
    return (note, DERIVED_NOTE) if has_ratio else (note,)
