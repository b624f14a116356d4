"""The kernels of a capture as sequences: one iteration, and where all the others belong."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from analysis.iterations import iteration_of, normalise
from analysis.runview import RunView

COLUMNS = ["start_ns", "end_ns", "process", "device", "kind", "name", "grid", "block", "path"]
MAX_LAUNCHES = 20_000
"""Longest iteration that is aligned; a capture without iterations may hold a million launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel of the representative iteration."""

    name: str
    category: str
    origin: str
    path: str
    shape: str
    "`grid/block`."
    dur_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """All launches of one run, and the iteration that stands for the others."""

    launches: tuple[Launch, ...]
    "The representative iteration, in order of start."
    spans: pd.DataFrame
    """name, path (normalised), dur_ns of every launch, and `position`: its index in `launches`
    where its iteration has the same names in the same order, else -1."""
    categories: dict[str, str]
    "Category of every kernel name of the run."


def load_sequences(view: RunView) -> Sequences | None:
    """Read a run's span files.

    None without them, when they do not hold all its kernel time, or past MAX_LAUNCHES.
    """
    spans = _load_spans(view)
    if spans is None or spans["dur_ns"].sum() != view.kernels["total_ns"].sum():
        return None
    groups = spans.groupby(["process", "device", "iteration"], sort=False, observed=True).indices
    names = spans["name"].cat.codes.to_numpy()
    orders = {key: names[rows].tobytes() for key, rows in groups.items()}
    inside = [key for key in orders if key[2]] or list(orders)
    usual, _ = Counter(orders[key] for key in inside).most_common(1)[0]
    alike = [key for key in inside if orders[key] == usual]
    shown = spans.iloc[groups[alike[len(alike) // 2]]]
    if len(shown) > MAX_LAUNCHES:
        return None
    position = np.full(len(spans), -1)
    for key in alike:
        position[groups[key]] = np.arange(len(shown))
    classes = view.kernels.drop_duplicates("name").set_index("name")
    categories = {str(k): str(v) for k, v in classes["category"].items()}
    return Sequences(
        launches=_launches(shown, categories, dict(classes["origin"].items())),
        spans=spans[["name", "path", "dur_ns"]].assign(position=position),
        categories=categories,
    )


def _launches(
    shown: pd.DataFrame, categories: dict[str, str], origins: dict[str, str]
) -> tuple[Launch, ...]:
    return tuple(
        Launch(
            name=row.name,
            category=categories.get(row.name, "unknown"),
            origin=str(origins.get(row.name, "unknown")),
            path=row.path,
            shape=f"{row.grid}/{row.block}",
            dur_ns=int(row.dur_ns),
        )
        for row in shown[["name", "path", "grid", "block", "dur_ns"]].itertuples(index=False)
    )


def _load_spans(view: RunView) -> pd.DataFrame | None:
    frames = []
    for i, path in enumerate(p for p in view.span_paths if p.exists()):
        with pq.ParquetFile(path) as file:
            table = file.read(columns=COLUMNS).to_pandas()
        table = table[table["kind"].isin(["kernel", "graph"])]
        frames.append(table.assign(process=table["process"] + 10_000 * i))
    if not frames or not any(len(f) for f in frames):
        return None
    spans = pd.concat(frames, ignore_index=True)
    spans = spans.sort_values("start_ns", kind="stable", ignore_index=True)
    paths = spans["path"].astype(object).where(spans["path"].notna(), "").astype("category")
    iterations = {p: iteration_of(p) for p in paths.cat.categories}
    normal = {p: normalise(p) for p in paths.cat.categories}
    return spans.assign(
        dur_ns=spans["end_ns"] - spans["start_ns"],
        name=spans["name"].astype(object).astype("category"),
        iteration=paths.astype(object).map(iterations).astype("category"),
        path=paths.astype(object).map(normal).astype("category"),
    )
