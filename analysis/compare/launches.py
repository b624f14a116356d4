"""The kernels of a capture as sequences: one iteration, and where all the others belong."""

from collections import Counter
from dataclasses import dataclass

import pandas as pd
import pyarrow.parquet as pq

from analysis.compare.metrics import iteration_of, normalise
from analysis.runview import RunView

COLUMNS = ["start_ns", "end_ns", "process", "device", "kind", "name", "grid", "block", "path"]


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
    """Read a run's span files; None without them, or when they do not hold all its kernel time."""
    spans = _load_spans(view)
    if spans is None or spans["dur_ns"].sum() != view.kernels["total_ns"].sum():
        return None
    groups = spans.groupby(["process", "device", "iteration"], sort=False).indices
    orders = {key: tuple(spans["name"].iloc[rows]) for key, rows in groups.items()}
    inside = [key for key in orders if key[2]] or list(orders)
    usual, _ = Counter(orders[key] for key in inside).most_common(1)[0]
    alike = [key for key in inside if orders[key] == usual]
    position = pd.Series(-1, index=spans.index)
    for key in alike:
        position.iloc[groups[key]] = range(len(usual))
    spans["position"] = position
    shown = spans.iloc[groups[alike[len(alike) // 2]]]
    classes = view.kernels.drop_duplicates("name").set_index("name")[["category", "origin"]]
    launches = tuple(
        Launch(
            name=row.name,
            category=str(classes["category"].get(row.name, "unknown")),
            origin=str(classes["origin"].get(row.name, "unknown")),
            path=row.path,
            shape=f"{row.grid}/{row.block}",
            dur_ns=int(row.dur_ns),
        )
        for row in shown.drop(columns="position").itertuples(index=False)
    )
    return Sequences(
        launches=launches,
        spans=spans[["name", "path", "dur_ns", "position"]],
        categories={str(k): str(v) for k, v in classes["category"].items()},
    )


def _load_spans(view: RunView) -> pd.DataFrame | None:
    frames = [
        pq.read_table(path, columns=COLUMNS, filters=[("kind", "in", ["kernel", "graph"])])
        for path in view.span_paths
        if path.exists()
    ]
    if not frames or not any(len(f) for f in frames):
        return None
    parts = [
        f.to_pandas().assign(process=lambda d, i=i: d["process"] + 10_000 * i)
        for i, f in enumerate(frames)
    ]
    spans = pd.concat(parts, ignore_index=True).sort_values("start_ns", kind="stable")
    spans = spans.reset_index(drop=True)
    spans["dur_ns"] = spans["end_ns"] - spans["start_ns"]
    spans["name"] = spans["name"].astype(str)
    raw = spans["path"].astype("string").fillna("").astype(str)
    spans["iteration"] = raw.map({p: iteration_of(p) for p in raw.unique()})
    spans["path"] = raw.map({p: normalise(p) for p in raw.unique()})
    return spans
