"""From runs and published figures to one tidy frame of cells."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import Any

import pandas as pd

from analysis.published import Figure, load_figures
from analysis.runview import RunView
from analysis.studies.engine.fields import fields_of, implied_by, with_one_name
from analysis.studies.engine.measures import SEEN_BY, latency_over, readings_of
from analysis.studies.engine.records import Study, Table, Value
from core.numbers import decimal

MEASURED = "measured"
CELL_COLUMNS = (
    "table",
    "from",
    "provenance",
    "source",
    "value_key",
    "value",
    "text",
    "unit",
    "status",
    "ci_low",
    "ci_high",
    "run_ids",
    "position",
)
Record = dict[str, Any]


def allowed(fields: Mapping[str, str], *rules: Mapping[str, tuple[str, ...]]) -> bool:
    """True when every field that a rule names has one of its values."""
    return all(fields.get(name) in values for rule in rules for name, values in rule.items())


def make_frame(study: Study, views: Sequence[RunView], *, published: bool) -> pd.DataFrame:
    """Return CELL_COLUMNS and a column for each field; runs of equal fields become one cell."""
    records: list[Record] = []
    shown = [(v, fields_of(v)) for v in views]
    shown = [(v, f) for v, f in shown if allowed(f, study.filters)]
    for table in study.tables:
        fitting = [(v, f) for v, f in shown if allowed(f, table.where)]
        mine = [(v, f) for v, f in fitting if all(f.get(name) for name in table.needs)]
        mine = _comparable(mine, table.compares)
        for value in table.values:
            is_own = "workload" in study.filters and value.extra is None
            cells = _measured(table, value, mine, names_workload=is_own)
            if published:
                cells += _published(table, value)
            if value.relative_to:
                cells = _relative(cells, value)
                ratios = value.published_ratio if published else ()
                printed = _published(table, value, ratios) if ratios else []
                cells = _with_printed(cells, printed)
            records += cells
    frame = pd.DataFrame(records)
    for column in CELL_COLUMNS:
        if column not in frame:
            frame[column] = None
    names = sorted(c for c in frame.columns if c not in CELL_COLUMNS)
    frame[names] = frame[names].astype(object).where(frame[names].notna(), "")
    return frame[[*CELL_COLUMNS, *names]]


def _comparable(
    shown: list[tuple[RunView, dict[str, str]]], name: str
) -> list[tuple[RunView, dict[str, str]]]:
    """Leave out jobs with a single value of a field if others have several to compare."""
    if not name:
        return shown
    rests = [tuple(sorted((k, x) for k, x in f.items() if k != name)) for _, f in shown]
    kinds: dict[object, set[str]] = {}
    for (_, fields), rest in zip(shown, rests, strict=True):
        kinds.setdefault(rest, set()).add(fields.get(name, ""))
    several = [s for s, rest in zip(shown, rests, strict=True) if len(kinds[rest]) > 1]
    return several or shown


def _measured(
    table: Table,
    value: Value,
    shown: Sequence[tuple[RunView, dict[str, str]]],
    *,
    names_workload: bool,
) -> list[Record]:
    if value.measure == "":
        return []
    by_fields: dict[tuple[tuple[str, str], ...], list[Record]] = {}
    for view, fields in shown:
        for record in _of_run(table, value, view, fields, names_workload=names_workload):
            key = tuple(sorted(record["fields"].items()))
            by_fields.setdefault(key, []).append(record)
    return [_combined(group, value.measure) for group in by_fields.values()]


def _of_run(
    table: Table,
    value: Value,
    view: RunView,
    fields: dict[str, str],
    *,
    names_workload: bool,
) -> Iterable[Record]:
    """Yield the run's readings; without one OOM, or missing where the study is of its workload."""
    base = {
        "table": table.title,
        "from": MEASURED,
        "provenance": MEASURED,
        "source": None,
        "value_key": value.key,
        "unit": value.unit,
        "run_ids": (view.run.id,),
        "view": view,
    }
    readings = readings_of(view, value.measure)
    seen_by = SEEN_BY.get(value.measure, frozenset())
    is_oom = view.run.status == "oom" and (not seen_by or bool(seen_by & {*view.run.profilers}))
    if not readings and (is_oom or names_workload):
        status = "oom" if view.run.status == "oom" else "missing"
        yield base | {"status": status, "value": None, "ci95": None, "fields": fields}
    for reading in readings:
        own = dict(reading.fields)
        if value.extra and reading.extra is not None:
            own[value.extra] = reading.extra
        yield base | {
            "status": "ok",
            "value": reading.value,
            "ci95": reading.ci95,
            "fields": fields | own,
        }


def _combined(group: list[Record], measure: str) -> Record:
    """Return one cell for runs of equal fields; OOM only where no run got through.

    A latency is that of all their samples, as a comparison counts them; other numbers the median.
    """
    fine = [r for r in group if r["status"] == "ok"]
    first = (fine or sorted(group, key=lambda r: r["status"] != "oom"))[0]
    value, ci95 = (first["value"], first["ci95"]) if fine else (None, None)
    if len(fine) > 1:
        value, ci95 = latency_over(measure, [r["view"] for r in fine]) or (
            median(r["value"] for r in fine),
            None,
        )
    texts = {"oom": "OOM", "missing": ""}
    text = texts[first["status"]] if value is None else number(value, first["unit"])
    return _record(first, value, text, ci95) | {
        "run_ids": tuple(i for r in fine or group for i in r["run_ids"]),
        "position": -1,
    }


def _record(
    base: Record, value: float | None, text: str, ci95: tuple[float, float] | None
) -> Record:
    plain = {k: v for k, v in base.items() if k not in ("fields", "ci95", "view")}
    low, high = ci95 or (None, None)
    shown = {"value": value, "text": text, "ci_low": low, "ci_high": high}
    return {**base["fields"], **plain, **shown}


def _published(table: Table, value: Value, metrics: Sequence[str] = ()) -> list[Record]:
    """Return the published figures that are this value (or one of `metrics`)."""
    records = []
    names = {f.fields: f.text for f in load_figures() if f.metric == value.named_by}
    for position, figure in enumerate(load_figures()):
        if figure.source not in table.sources:
            continue
        matched, extra = _is_metric(figure, metrics or value.published)
        extra = names.get(figure.fields, extra)
        fields = with_one_name(dict(figure.fields))
        if value.published_field:
            extra = fields.pop(value.published_field, None)
        fields |= {value.extra: extra} if value.extra and extra else {}
        if matched and allowed(fields, table.where):
            record = _published_record(table, value, figure)
            records.append(fields | record | {"position": position})
    return records


def _published_record(table: Table, value: Value, figure: Figure) -> Record:
    texts = {"ok": _digits(figure.text), "oom": "OOM", "missing": "missing"}
    return {
        "table": table.title,
        "from": f"published: {figure.source}",
        "provenance": "published",
        "source": figure.source,
        "value_key": value.key,
        "value": figure.value,
        "text": texts[figure.status],
        "unit": figure.unit,
        "status": figure.status,
        "ci_low": None,
        "ci_high": None,
        "run_ids": (),
    }


def _digits(text: str) -> str:
    """Return a printed number with the digits it was printed with, but without an exponent."""
    mantissa, sign, _ = text.lower().partition("e-")
    return f"{Decimal(text):f}" if sign and mantissa.replace(".", "").isdigit() else text


def _is_metric(figure: Figure, metrics: Sequence[str]) -> tuple[bool, str | None]:
    for wanted in metrics:
        name, _, unit = wanted.partition("|")
        if unit and unit != figure.unit:
            continue
        if name.endswith("*") and figure.metric.startswith(name[:-1]):
            return True, figure.metric.removeprefix(name[:-1])
        if name == figure.metric:
            return True, None
    return False, None


def _relative(records: list[Record], value: Value) -> list[Record]:
    """Replace each value by base / value, where base has the named field's value; else drop it."""
    name, base_value = value.relative_to or ("", "")
    bases = {_rest(r, name): r for r in records if r.get(name) == base_value and r["value"]}
    ratios = []
    for record in records:
        base = bases.get(_rest(record, name))
        if record.get(name) == base_value:
            continue
        if record["status"] != "ok":
            ratios.append(record)
        elif base is not None and record["value"]:
            ratio = base["value"] / record["value"]
            if value.is_overhead:
                ratio = 100 * (1 / ratio - 1)
            ratios.append(
                record
                | {
                    "value": ratio,
                    "text": f"{ratio:.0f}" if value.is_overhead else f"{ratio:.2f}",
                    "unit": value.unit,
                    "ci_low": None,
                    "ci_high": None,
                }
            )
    return ratios


def _with_printed(derived: list[Record], printed: list[Record]) -> list[Record]:
    """Return the records with a source's own ratios in place of those derived from its figures.

    A source may state fewer fields beside a ratio than beside what it is a ratio of.
    """
    records = list(derived)
    for own in printed:
        stated = {k: v for k, v in own.items() if k not in CELL_COLUMNS} | {"from": own["from"]}
        places = [i for i, r in enumerate(records) if all(r.get(k) == v for k, v in stated.items())]
        if len(places) == 1:
            records[places[0]] = records[places[0]] | own
        else:
            records.append(own)
    return records


def _rest(record: Record, name: str) -> tuple[tuple[str, Any], ...]:
    skipped = {name, *implied_by({name}), *CELL_COLUMNS} - {"from", "table"}
    return tuple(sorted((k, v) for k, v in record.items() if k not in skipped))


def number(value: float, unit: str = "") -> str:
    """Return four significant digits without an exponent; one decimal for a percentage."""
    if unit == "%" and abs(value) >= 1:
        return f"{value:.1f}"
    if value == 0:
        return "0"
    if unit in ("", "blocks") and float(value).is_integer():  # a count
        return f"{value:.0f}"
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:.{digits}f}" if size >= 0.1 else decimal(value, 3)
