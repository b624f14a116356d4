"""The filter language of runs: `gpu:4090 compile:none latency<3 -tag:old "free text"`.

Terms are joined by AND. `-` before a term negates it. `key:a,b` means one of several values.
Text fields match a part of the value, case ignored (a GPU by whole words: `L4` is not an `L40S`);
`status`, `source`, `tag`, `id` and parameters
match the whole value. Every name that is not a field below is a parameter of the workload.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import UserError

_TERM = re.compile(
    r"""(?P<neg>-)?(?:(?P<key>[A-Za-z_][A-Za-z0-9_.]*)(?P<op><=|>=|:|=|<|>))?(?P<value>"[^"]*"|[^\s"]*)"""
)
_MISPLACED = re.compile(r"[A-Za-z_][\w.]*!=|[:=<>!]")
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*([a-zA-Z%]*)\Z")

_TIME = {"": 1.0, "ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_BYTES = {
    "": 1.0,
    "b": 1.0,
    **{f"{p}b": 1000.0**i for i, p in enumerate("kmgt", 1)},
    **{f"{p}ib": 1024.0**i for i, p in enumerate("kmgt", 1)},
}
_FRACTION = {"": 1.0, "%": 0.01}
_KERNEL_TIME = {"": 1e6, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_PLAIN = {"": 1.0}

NUMBER_FIELDS: dict[str, tuple[str, dict[str, float]]] = {
    "latency": ("r.latency_ms", _TIME),
    "kernel_time": ("r.kernel_time_ns", _KERNEL_TIME),
    "idle": ("r.idle_frac", _FRACTION),
    "gemm": ("r.gemm_frac", _FRACTION),
    "memory": ("r.peak_memory_bytes", _BYTES),
    "samples": ("r.num_samples", _PLAIN),
    "repeats": ("r.repeats", _PLAIN),
    "attempt": ("r.attempt", _PLAIN),
}
"Numbers; without a unit `latency` and `kernel_time` are in ms, `memory` in bytes."
PART_FIELDS = {
    "gpu": "coalesce(r.gpu_model, '')",
    "name": "r.name",
    "notes": "r.notes",
    "error": "coalesce(r.error, '')",
    "worker": "coalesce(r.worker_id, '')",
    "profilers": "r.profilers",
}
EXACT_FIELDS = {
    "id": "r.id",
    "status": "r.status",
    "source": "r.source",
    "workload": "coalesce(r.workload, '')",
    "sweep": "coalesce(r.sweep_id, '')",
}
DATE_FIELDS = {"created": "r.created_at", "finished": "coalesce(r.finished_at, '')"}
SPECIAL_FIELDS = ("tag", "baseline")
FIELDS = tuple(sorted((*NUMBER_FIELDS, *PART_FIELDS, *EXACT_FIELDS, *DATE_FIELDS, *SPECIAL_FIELDS)))


MAX_CONDITIONS = 400
"""Conditions of one filter: SQLite takes an expression at most 1000 deep, and each adds one."""


class QuerySyntaxError(UserError):
    """Report a filter that cannot be read; `position` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        self.position = position
        super().__init__(f"filter, character {position + 1}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One condition. `key` is None for free text."""

    key: str | None
    op: str
    values: tuple[str, ...]
    negated: bool
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """A WHERE expression over `runs AS r` with its bound parameters."""

    sql: str
    params: tuple[Any, ...]


def parse_query(text: str) -> tuple[Term, ...]:
    """Return the terms of a filter; QuerySyntaxError names the place of what cannot be read."""
    terms: list[Term] = []
    position = num_conditions = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TERM.match(text, position)
        assert match is not None  # every part of the pattern may be empty
        if text[match.end() : match.end() + 1] == '"' and not match["value"]:
            raise QuerySyntaxError('a quotation mark (") is not closed', match.end())
        terms.append(_term(match, position))
        num_conditions += len(terms[-1].values)
        if num_conditions > MAX_CONDITIONS:
            raise QuerySyntaxError(
                f"a filter holds at most {MAX_CONDITIONS} conditions, and this is one more;"
                " tag the runs and filter by the tag",
                position,
            )
        position = match.end()
        if position < len(text) and not text[position].isspace():
            raise QuerySyntaxError(f"unexpected {text[position]!r}", position)
    return tuple(terms)


def _term(match: re.Match[str], position: int) -> Term:
    raw = match["value"]
    quoted = raw.startswith('"')
    text = raw[1:-1] if quoted else raw
    values = (text,) if quoted or match["key"] is None else tuple(text.split(","))
    if match["key"] and not all(values):
        raise QuerySyntaxError(f"{match['key']}{match['op']} needs a value", match.end())
    if not match["key"] and not raw.strip('"'):
        raise QuerySyntaxError("a term is empty", position)
    if not match["key"] and _MISPLACED.match(raw):
        what = f"{raw!r} is neither FIELD<VALUE (without blanks) nor -FIELD:VALUE"
        raise QuerySyntaxError(f"{what}; a text goes into quotation marks", match.start("value"))
    key = match["key"].lower() if match["key"] else None
    op = {"=": ":"}.get(match["op"] or ":", match["op"] or ":")
    if op != ":" and len(values) > 1:
        raise QuerySyntaxError(f"{match['op']} takes one value", match.start("value"))
    return Term(key=key, op=op, values=values, negated=bool(match["neg"]), position=position)


def compile_query(text: str | None) -> Clause:
    """Return the bound SQL of a filter; an empty filter matches everything."""
    clauses = [_clause(term) for term in parse_query(text or "")]
    if not clauses:
        return Clause(sql="1", params=())
    return Clause(
        sql=" AND ".join(c.sql for c in clauses),
        params=tuple(p for c in clauses for p in c.params),
    )


def param_keys(text: str | None) -> tuple[str, ...]:
    """Return the keys of a filter that are parameters rather than fields of a run."""
    keys = {t.key for t in parse_query(text or "") if t.key and t.key not in FIELDS}
    return tuple(sorted(keys))


def _clause(term: Term) -> Clause:
    parts = [_condition(term, value) for value in term.values]
    sql = "(" + " OR ".join(p.sql for p in parts) + ")"
    # A comparison with NULL is NULL; coalesce makes "unknown" a plain no, also under negation.
    sql = f"NOT coalesce({sql}, 0)" if term.negated else sql
    return Clause(sql=sql, params=tuple(p for part in parts for p in part.params))


def _condition(term: Term, value: str) -> Clause:
    key = term.key
    if key is None:
        return _free_text(value)
    if key in NUMBER_FIELDS:
        column, units = NUMBER_FIELDS[key]
        return _compare(column, term.op, _number(term, value, units))
    if key in DATE_FIELDS:
        return _compare(f"substr({DATE_FIELDS[key]}, 1, {len(value)})", term.op, value)
    if key in (*PART_FIELDS, *EXACT_FIELDS, *SPECIAL_FIELDS):
        return _text_condition(term, value)
    return _param_condition(term, value)


def _text_condition(term: Term, value: str) -> Clause:
    key = term.key or ""
    if term.op != ":":
        raise QuerySyntaxError(f"{key} is text: use {key}:VALUE", term.position)
    if key == "gpu":
        return Clause(sql=f"gpu_fits(?, {PART_FIELDS[key]})", params=(value,))
    if key in PART_FIELDS:
        return Clause(sql=f"{PART_FIELDS[key]} LIKE ? ESCAPE '\\'", params=(_like(value),))
    if key in EXACT_FIELDS:
        return Clause(sql=f"lower({EXACT_FIELDS[key]}) = ?", params=(value.lower(),))
    if key == "tag":
        return Clause(
            sql="r.id IN (SELECT run_id FROM tags WHERE lower(tag) = ?)", params=(value.lower(),)
        )
    if value.lower() not in ("true", "false", "yes", "no"):
        raise QuerySyntaxError("baseline is true or false", term.position)
    wanted = 1 if value.lower() in ("true", "yes") else 0
    return Clause(sql="(r.id IN (SELECT run_id FROM baselines)) = ?", params=(wanted,))


def _param_condition(term: Term, value: str) -> Clause:
    path = f'$."{term.key}"'
    number = _NUMBER.match(value)
    if term.op != ":":
        if number is None or number[2]:
            raise QuerySyntaxError(f"{value!r} is not a number", term.position)
        sql = "(json_type(r.params, ?) IN ('integer', 'real') AND json_extract(r.params, ?)"
        return Clause(sql=f"{sql} {term.op} ?)", params=(path, path, float(number[1])))
    if number is not None and not number[2]:
        return Clause(
            sql="(CAST(json_extract(r.params, ?) AS TEXT) = ? OR json_extract(r.params, ?) = ?)",
            params=(path, value, path, float(number[1])),
        )
    # JSON true comes out as 1: compare it by the type's name.
    return Clause(
        sql="(lower(CAST(json_extract(r.params, ?) AS TEXT)) = ? OR json_type(r.params, ?) = ?)",
        params=(path, value.lower(), path, value.lower()),
    )


def _free_text(value: str) -> Clause:
    like = _like(value)
    columns = (*PART_FIELDS.values(), EXACT_FIELDS["workload"], "r.id", "r.params")
    sql = " OR ".join(f"{c} LIKE ? ESCAPE '\\'" for c in columns)
    sql = f"({sql} OR r.id IN (SELECT run_id FROM tags WHERE tag LIKE ? ESCAPE '\\'))"
    return Clause(sql=sql, params=(like,) * (len(columns) + 1))


def _compare(column: str, op: str, value: float | str) -> Clause:
    return Clause(sql=f"{column} {'=' if op == ':' else op} ?", params=(value,))


def _number(term: Term, value: str, units: dict[str, float]) -> float:
    match = _NUMBER.match(value)
    if match is None or match[2].lower() not in units:
        allowed = ", ".join(u for u in units if u) or "none"
        raise QuerySyntaxError(
            f"{term.key}: {value!r} is not a number (units: {allowed})", term.position
        )
    return float(match[1]) * units[match[2].lower()]


def _like(value: str) -> str:
    escaped: Sequence[str] = [f"\\{c}" if c in "\\%_" else c for c in value]
    return "%" + "".join(escaped) + "%"
