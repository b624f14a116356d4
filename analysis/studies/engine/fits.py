"""Growth exponents: value ~ x ** exponent, by least squares on logarithms."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.studies.engine.cells import CELL_COLUMNS, MEASURED
from analysis.studies.engine.drawn import distinguishing_fields, label_of, value_text
from analysis.studies.engine.fields import implied_by, sort_key
from analysis.studies.engine.records import FitRow, Table

TAIL_POINTS = 3


def fit_table(table: Table, frame: pd.DataFrame) -> tuple[FitRow, ...]:
    """Return one exponent for each group of cells that differ in the x field alone.

    The 95 % interval is the t interval of the slope with n - 2 degrees of freedom; it holds the
    scatter around a straight line, so it is wide where growth is not yet a power law. The exponent
    of the largest x alone stands beside it.
    """
    fit = table.fit
    if fit is None or fit.x not in frame:
        return ()
    rows = frame[(frame["table"] == table.title) & (frame["value_key"] == fit.value)]
    rows = rows[(rows["status"] == "ok") & (rows[fit.x] != "")]
    names = [c for c in frame.columns if c not in CELL_COLUMNS and c != fit.x]
    names = ["from", *(n for n in names if rows[n].nunique() > 1 or n in table.rows)]
    fits: list[FitRow] = []
    for key, group in rows.groupby(names, sort=False):
        x = pd.to_numeric(group[fit.x], errors="coerce").to_numpy(dtype=float)
        y = group["value"].to_numpy(dtype=float)
        good = (x > 0) & (y > 0)
        if len(set(x[good])) >= 2:
            slope, ci95 = power_law(x[good], y[good])
            tail = _tail(x[good], y[good])
            texts = zip(names[1:], map(str, key[1:]), strict=True)
            fits.append(
                FitRow(
                    table=table.title,
                    of=value_text(table, fit.value),
                    x=fit.x,
                    group=tuple((n, t) for n, t in texts if t and n != fit.x),
                    provenance=str(key[0]),
                    exponent=slope,
                    ci95=ci95,
                    num_points=int(good.sum()),
                    label="",
                    tail_exponent=tail[0],
                    tail_ci95=tail[1],
                )
            )
    fits.sort(key=partial(_place, table))
    labels = _labels([dict(fit.group) | {"from": fit.provenance} for fit in fits], table)
    return tuple(replace(fit, label=label) for fit, label in zip(fits, labels, strict=True))


def _place(table: Table, fit: FitRow) -> tuple[bool, list[tuple[int, float, str]]]:
    """Order ours as the rows of their table; published ones, after them, as printed."""
    group, is_ours = dict(fit.group), fit.provenance == MEASURED
    names = [*table.rows, *sorted(group)] if is_ours else []
    return not is_ours, [sort_key(name, group.get(name, "")) for name in names]


def _tail(x: np.ndarray, y: np.ndarray) -> tuple[float | None, tuple[float, float] | None]:
    """Return the power law of the TAIL_POINTS largest x; None where that is all there are."""
    places = sorted(set(x))
    if len(places) <= TAIL_POINTS:
        return None, None
    is_large = x >= places[-TAIL_POINTS]
    return power_law(x[is_large], y[is_large])


def _labels(groups: Sequence[dict[str, str]], table: Table) -> list[str]:
    """Return each group's label: the fewest fields that identify it, the table's own first.

    A field that tells nothing further apart is left out; of one group alone, what a chart colours.
    """
    others = sorted({name for group in groups for name in group} - {"from", *table.rows})
    doubled = implied_by({*table.rows, *table.columns})
    others.sort(key=doubled.__contains__)
    kept = distinguishing_fields(groups, [*table.rows, *others])
    kept = kept or ([table.chart.colour] if table.chart else [])
    return [label_of({n: g[n] for n in kept if g.get(n)}) for g in groups]


def power_law(
    x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray
) -> tuple[float, tuple[float, float] | None]:
    """Return the exponent of y ~ x ** exponent and its 95 % interval (None under 3 points)."""
    from scipy import special  # scipy.stats takes most of a second to load

    u, v = np.log(x), np.log(y)
    u, v = u - u.mean(), v - v.mean()
    slope = float(u @ v / (u @ u))
    if len(x) < 3:
        return slope, None
    freedom = len(x) - 2
    scatter = v - slope * u
    error = float(np.sqrt(scatter @ scatter / freedom / (u @ u)))
    half = float(special.stdtrit(freedom, 0.975)) * error
    return slope, (slope - half, slope + half)
