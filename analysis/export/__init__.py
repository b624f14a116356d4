"""Comparisons and studies as files: Markdown, CSV, JSON, and HTML that opens offline.

Every text that came from a capture or a user is escaped: kernel names hold angle brackets, pipes
and, in a hostile file, markup or spreadsheet formulas.
"""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from analysis.compare.records import Comparison
from analysis.export.document import (
    Document,
    DocumentTable,
    comparison_document,
    study_document,
)
from analysis.studies.engine.records import StudyTable
from core.plain_text import MAX_CELL_CHARS, cut, escape, is_formula, visible

Exportable = Comparison | StudyTable
MARKDOWN_SPECIAL = re.compile(r"([\\`*\[\]<>|~&])|(?<![A-Za-z0-9])(_)|(_)(?![A-Za-z0-9])")
MENTION = re.compile(r"(?<![A-Za-z0-9])[@#](?=[A-Za-z0-9])|\bGH-(?=\d)|(?<=://)|\bwww(?=\.)", re.I)
"""What GitHub autolinks: `@user`, `#1`, `GH-1`, addresses."""
PAIR_FIELDS = (
    "a",
    "b",
    "match",
    "confidence",
    "category",
    "path",
    "a_count",
    "b_count",
    "a_ns",
    "b_ns",
    "delta_ns",
)
LONG_CELL = 48
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;"
    "color:#1c2330;background:#fff}table{border-collapse:collapse;display:block;overflow-x:auto}"
    "th,td{padding:.25rem .6rem;border-bottom:1px solid #d5dae2;text-align:left;"
    "vertical-align:top}td.long{overflow-wrap:anywhere;min-width:16rem}th{background:#f3f5f8}"
    "svg{width:100%;height:auto;font-size:11px;fill:#1c2330}"
    "tr.published{color:#6b5200;background:#fff8e1}"
    "@media(prefers-color-scheme:dark){body{background:#14181f;color:#e4e8ee}"
    "th{background:#222833}svg{fill:#e4e8ee}tr.published{color:#f0d080;background:#2c2616}}"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def to_markdown(result: Exportable) -> str:
    """Return GitHub-flavoured Markdown that can be pasted into a README."""
    document = _document(result)
    parts = [f"## {_markdown(document.title)}"]
    parts += [_markdown(text) for text in document.paragraphs]
    for table in document.tables:
        parts += [f"### {_markdown(table.title)}", _markdown_table(table)]
    return "\n\n".join(parts) + "\n"


def to_csv(result: Exportable) -> str:
    """Return the kernels of a comparison, or the tidy cells of a study, one per line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header, rows = _kernel_rows(result) if isinstance(result, Comparison) else _cell_rows(result)
    writer.writerow([_csv_cell(name) for name in header])
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return out.getvalue()


def to_json(result: Exportable) -> str:
    """Return one JSON document: `Comparison.as_dict`, or a study's tables, fits and jobs."""
    data = result.as_dict() if isinstance(result, Comparison) else study_dict(result)
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)


def to_html(result: Exportable) -> str:
    """Return one HTML file with its charts; it loads nothing and runs no script."""
    document = _document(result)
    title = escape(document.title)
    body = [f"<h1>{title}</h1>", *(f"<p>{escape(p)}</p>" for p in document.paragraphs)]
    for table in document.tables:
        body += [f"<h2>{escape(table.title)}</h2>", table.svg, _html_table(table)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}<p>Made by Warpboard.</p></body></html>\n"
    )


def study_dict(t: StudyTable) -> dict[str, Any]:
    """Return the document of `study NAME --format json`."""
    return {
        "name": t.study.name,
        "title": t.study.title,
        "about": t.study.about,
        "notes": list(t.notes),
        "tables": [
            {
                "title": p.title,
                "row_fields": list(p.row_fields),
                "columns": list(p.columns),
                "rows": [
                    {"keys": list(key), "cells": [asdict(cell) for cell in cells]}
                    for key, cells in zip(p.rows, p.cells, strict=True)
                ],
            }
            for p in t.pivots
        ],
        "fits": [asdict(fit) | {"group": dict(fit.group)} for fit in t.fits],
        "jobs": [dict(job) for job in t.jobs],
    }


def _document(result: Exportable) -> Document:
    return comparison_document(result) if isinstance(result, Comparison) else study_document(result)


def _markdown(text: str) -> str:
    plain = " ".join(visible(cut(text, MAX_CELL_CHARS)).split())
    escaped = MARKDOWN_SPECIAL.sub(lambda match: "\\" + match.group(0), plain)
    return MENTION.sub("\\g<0>\u2060", escaped)


def _markdown_table(table: DocumentTable) -> str:
    lines = [table.header, tuple("---" for _ in table.header), *table.rows]
    return "\n".join(
        "| " + " | ".join(cell if cell == "---" else _markdown(cell) for cell in line) + " |"
        for line in lines
    )


def _html_table(table: DocumentTable) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    rows = "".join(
        f"<tr{_row_class(row)}>" + "".join(_html_cell(cell) for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _html_cell(text: str) -> str:
    kind = ' class="long"' if len(text) > LONG_CELL else ""
    return f"<td{kind}>{escape(text)}</td>"


def _row_class(row: Sequence[str]) -> str:
    return ' class="published"' if row and row[0].startswith("published") else ""


def _kernel_rows(c: Comparison) -> tuple[list[str], list[list[Any]]]:
    header = [*PAIR_FIELDS]
    return header, [[getattr(k, name) for name in header] for k in c.kernels]


def _cell_rows(t: StudyTable) -> tuple[list[str], list[list[Any]]]:
    hidden = ("position", "from")
    header = [str(c) for c in t.frame.columns if c not in hidden]
    rows = [[record[c] for c in header] for record in t.frame.to_dict("records")]
    return header, [[" ".join(v) if isinstance(v, tuple) else v for v in row] for row in rows]


def _csv_cell(value: Any) -> Any:
    """Blank what is unknown; keep a text from being taken for a formula by a spreadsheet."""
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        text = cut(value, MAX_CELL_CHARS)
        return "'" + visible(text) if is_formula(text) else visible(text)
    return value
