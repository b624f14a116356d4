"""The kernels of a capture as sequences: one iteration, and where all the others belong."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from analysis.iterations import iteration_of, normalise
from analysis.per_step import basis_of
from analysis.runview import RunView
from analysis.span_file import is_whole

COLUMNS = ["start_ns", "end_ns", "process", "device", "kind", "name", "grid", "block"]
COLUMNS += ["path", "launch_start_ns"]
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
    """All launches of a run, and a representative iteration."""

    launches: tuple[Launch, ...]
    "The representative iteration, in order of start."
    spans: pd.DataFrame
    """name, path (normalised), dur_ns of every launch, and `position`: its index in `launches`
    where its iteration has the same names in the same order, else -1."""
    categories: dict[str, str]
    "Category of every kernel name of the run."


def load_sequences(view: RunView, *, in_steps: bool = False) -> Sequences | None:
    """Read a run's span files; `in_steps`: only launches in its regular steps.

    None without them, when they do not hold all that kernel time, or past MAX_LAUNCHES.
    """
    spans = _load_spans(view)
    if spans is None or spans["dur_ns"].sum() != view.kernels["total_ns"].sum():
        return None
    if in_steps:
        spans = _of_steps(spans, view)
        basis = basis_of(view)
        wanted = view.by_step.kernels["total_ns"].sum() * (basis.num if basis else 0)
        if abs(spans["dur_ns"].sum() - wanted) > 0.5:
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


def _of_steps(spans: pd.DataFrame, view: RunView) -> pd.DataFrame:
    """Return the operations of the regular steps, by when they were launched, else by their start.

    The step is the iteration that each belongs to.
    """
    steps = view.by_step.steps
    own = steps[steps["is_regular"]]
    own = own[own["process"] == own["process"].iloc[0]].sort_values("start_ns")
    launched = spans["launch_start_ns"].notna().to_numpy()
    step = np.where(
        launched,
        _place(spans["launch_start_ns"].fillna(0), own["start_ns"], own["end_ns"]),
        _place(spans["start_ns"], own["gpu_start_ns"].fillna(0), own["gpu_end_ns"].fillna(0) + 1),
    )
    inside = step >= 0
    if spans["process"].nunique() > 1:
        inside &= spans["process"].to_numpy() == own["process"].iloc[0]
    names = [f"step_{i}" for i in step[inside].tolist()]
    kept = spans[inside].reset_index(drop=True)
    return kept.assign(iteration=pd.Categorical(names))


def _place(time_ns: pd.Series, start_ns: pd.Series, end_ns: pd.Series) -> np.ndarray:
    """Return which of some stretches in order holds each time; -1 for none."""
    times = time_ns.to_numpy(np.int64)
    place = np.searchsorted(start_ns.to_numpy(np.int64), times, side="right") - 1
    is_inside = (place >= 0) & (times < end_ns.to_numpy(np.int64)[np.maximum(place, 0)])
    return np.where(is_inside, place, -1)


def _load_spans(view: RunView) -> pd.DataFrame | None:
    frames = []
    for i, path in enumerate(p for p in view.span_paths if is_whole(p)):
        with pq.ParquetFile(path) as file:
            table = file.read(columns=COLUMNS).to_pandas()
        table = table[table["kind"].isin(["kernel", "graph"])]
        frames.append(table.assign(process=table["process"] + 10_000 * i))
    if not frames or not any(len(f) for f in frames):
        return None
    spans = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    spans = spans.sort_values("start_ns", kind="stable", ignore_index=True)
    name, names = pd.factorize(spans["name"])
    place, texts = pd.factorize(spans["path"])
    paths = ["" if i < 0 else str(texts[i]) for i in range(-1, len(texts))]  # the first: of none
    place += 1
    return spans.assign(
        dur_ns=spans["end_ns"] - spans["start_ns"],
        name=pd.Categorical.from_codes(name, [str(text) for text in names]),
        iteration=_renamed(place, [iteration_of(path) for path in paths]),
        path=_renamed(place, [normalise(path) for path in paths]),
    )


def _renamed(place: np.ndarray, names: Sequence[str]) -> pd.Categorical:
    """Return the name of each row's place; several places may have one name."""
    different = sorted(set(names))
    code = {name: i for i, name in enumerate(different)}
    return pd.Categorical.from_codes(np.array([code[n] for n in names])[place], different)
