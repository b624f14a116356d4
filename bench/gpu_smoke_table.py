"""Print what became of each job of `gpu_smoke.sh`, and one JSON line; exit 1 on a surprise.

python bench/gpu_smoke_table.py JOBS_TSV OUT_DIR
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job: what was expected and what its bundle says."""

    name: str
    expected: str
    status: str
    outcomes: str
    codes: tuple[str, ...]
    "Outcomes of passes and codes of warnings."
    latency_ms: float | None
    as_expected: bool
    error: str


def read_row(line: str, out: Path) -> Row:
    """Return the row of one job; a missing manifest is the status `no bundle`."""
    name, expected, _ = line.split("\t", 2)
    path = out / name / "manifest.json"
    manifest = json.loads(path.read_text()) if path.is_file() else {}
    passes = manifest.get("passes", [])
    outcomes = " ".join(f"{p['pass']}={p['outcome']}" for p in passes)
    warnings = [*manifest.get("warnings", []), *(w for p in passes for w in p.get("warnings", []))]
    codes = {str(p["outcome"]) for p in passes} | {str(w["code"]) for w in warnings}
    status = manifest.get("status", "no bundle")
    wanted_status, _, wanted_code = expected.partition(":")
    as_expected = status == wanted_status and (not wanted_code or wanted_code in codes)
    if expected == "done":
        as_expected = as_expected and all(p["outcome"] == "ok" for p in passes)
    return Row(
        name=name,
        expected=expected,
        status=status,
        outcomes=outcomes,
        codes=tuple(sorted(codes - {"ok"})),
        latency_ms=_latency_ms(passes),
        as_expected=as_expected,
        error=str(manifest.get("error") or "") if status != wanted_status else "",
    )


def _latency_ms(passes: list[dict[str, Any]]) -> float | None:
    samples = sorted(
        ns for p in passes if p["pass"] == "clean" for ns in p["result"].get("samples_ns", ())
    )
    return samples[len(samples) // 2] / 1e6 if samples else None


def main() -> int:
    jobs, out = Path(sys.argv[1]), Path(sys.argv[2])
    rows = [read_row(line, out) for line in jobs.read_text().splitlines() if line]
    for row in rows:
        sign = "ok  " if row.as_expected else "BAD "
        latency = "" if row.latency_ms is None else f"{row.latency_ms:.4g} ms"
        codes = ",".join(row.codes)
        print(f"{sign}{row.name:28}{row.status:10}{latency:14}{row.outcomes}  {codes}  {row.error}")
    print(json.dumps({"schema_version": 1, "rows": [asdict(row) for row in rows]}))
    return 0 if all(row.as_expected for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
