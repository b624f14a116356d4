"""Write down every number that is read from the captures at hand, or say what has changed since.

    python -m bench.golden OUT.json [--root DIR] [--only PART] [--against OLD.json]

Reads all captures of tests/data, those of the example data (bundles in archives included), and
damaged copies of the real captures that are the same each time. `--root` reads them with another
checkout of the product. `--only`: tests, examples or damaged. `--against` lists the differences to
an older dump, alike ones together; the exit code is 1 where there are any.
"""

import argparse
import dataclasses
import hashlib
import importlib
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.demo.load import unpack
from bench.mutations.kinds import mutate

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "data"
EXAMPLES = ROOT / "app" / "demo" / "data"
CAPTURES = (".sqlite", ".csv", ".gz", ".trace.json", ".log", ".pickle", ".nsys-rep")
COPIES = {".sqlite": 24, ".gz": 4}
"""Damaged copies a file, by suffix."""
OTHER_COPIES = 3
SHOWN = 6


def dump(path: Path, *, is_short: bool = False) -> dict[str, Any]:
    """Return everything read from one file, or the error; `is_short` keeps digests of tables."""
    errors = importlib.import_module("core.errors")
    read = importlib.import_module("analysis.readers").read
    try:
        tables = read(path)
    except (errors.CaptureError, errors.ToolUnavailableError) as exc:
        return {"error": str(exc).replace(str(path), path.name)}
    except Exception as exc:  # a fault of the reader: the dump goes on and shows it
        return {"traceback": repr(exc)}
    numbers: dict[str, Any] = {
        "kind": str(tables.kind),
        "version": tables.tool_version,
        "gpu": dict(tables.gpu),
        "environment": dict(tables.environment),
        "summary": dict(tables.summary),
        "memory": dict(tables.memory),
        "step_facts": dict(tables.step_facts),
        "warnings": sorted([w.code, w.message] for w in tables.warnings),
    }
    for name in (f.name for f in dataclasses.fields(tables)):
        frame = getattr(tables, name)
        if hasattr(frame, "to_dict"):
            rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
            texts = sorted(json.dumps(row, sort_keys=True, default=_plain) for row in rows)
            numbers[name] = _digest(texts) if is_short else [json.loads(text) for text in texts]
    for name in ("spans", "ranges", "host"):
        table = getattr(tables, name)
        if table is not None:
            numbers[name] = _columns(table)
    return json.loads(json.dumps(numbers, sort_keys=True, default=_plain))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def _digest(texts: list[str]) -> str:
    whole = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return f"{len(texts)} rows {whole[:16]}"


def _columns(table: Any) -> dict[str, str]:
    """Return a digest of each column of the records, in an order that does not depend on ties."""
    if not hasattr(table, "to_pylist"):  # a file of records
        table = importlib.import_module("pyarrow").concat_tables(table.batches())
    times = ("start_ns", "end_ns")
    keys = (*times, "device", "stream", "thread", "depth", "name", "path", "bytes", "row", "kind")
    rows = table.to_pylist()
    rows.sort(key=lambda row: [str(row.get(key)) for key in keys])
    return {name: _digest([str(row[name]) for row in rows]) for name in table.column_names}


def files(part: str, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Give the name and place of every capture of a part of the data."""
    if part == "tests":
        for path in _captures(TESTS):
            yield f"tests/{path.relative_to(TESTS)}", path
    elif part == "examples":
        for path in _captures(EXAMPLES):
            yield f"examples/{path.relative_to(EXAMPLES)}", path
        for archive in sorted(EXAMPLES.glob("*.tar.xz")):
            folder = unpack(archive.name, scratch)
            for path in _captures(folder):
                yield f"examples/{archive.name}/{path.relative_to(folder)}", path
    else:
        yield from _damaged(scratch)


def _captures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.name.endswith(CAPTURES))


def _damaged(scratch: Path) -> Iterator[tuple[str, Path]]:
    for path in _captures(TESTS / "h100"):
        whole = path.read_bytes()
        for seed in range(COPIES.get(path.suffix, OTHER_COPIES)):
            rng = random.Random(f"{path.name} {seed}")
            data, damage = mutate(whole, path.name, rng)
            copy = scratch / f"{seed}-{path.name}"
            copy.write_bytes(data)
            yield f"damaged/{path.relative_to(TESTS / 'h100')} {seed} ({damage})", copy
            copy.unlink()


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return (capture, what changed) of the captures in both dumps, by kind of difference."""
    by_kind: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in sorted(old.keys() & new.keys()):
        for kind, text in _changes(old[name], new[name]):
            by_kind[kind].append((name, text))
    return by_kind


def _changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for section in sorted(old.keys() | new.keys()):
        before, after = old.get(section), new.get(section)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            for key in sorted(before.keys() | after.keys()):
                if before.get(key) != after.get(key):
                    yield f"{section}.{key}", f"{before.get(key)} -> {after.get(key)}"
        elif section == "warnings":
            yield from _changed_warnings(before or [], after or [])
        elif isinstance(before, list) and isinstance(after, list):
            yield from _changed_rows(section, before, after)
        else:
            yield section, f"{str(before)[:200]} -> {str(after)[:200]}"


def _changed_warnings(old: list[list[str]], new: list[list[str]]) -> Iterator[tuple[str, str]]:
    for code, message in old:
        if [code, message] not in new:
            yield f"warning gone: {code}", message
    for code, message in new:
        if [code, message] not in old:
            yield f"warning new: {code}", message


def _changed_rows(
    section: str, old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> Iterator[tuple[str, str]]:
    keys = [k for k in ("path", "process", "name", "grid", "block", "kind", "src", "dst", "cause")]
    before, after = (_by_key(rows, keys) for rows in (old, new))
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            yield f"{section}: row gone", f"{key} {before[key]}"
        elif key not in before:
            yield f"{section}: row new", f"{key} {after[key]}"
        else:
            columns = before[key].keys() | after[key].keys()
            for column in sorted(columns):
                one, two = before[key].get(column), after[key].get(column)
                if one != two:
                    yield f"{section}.{column}", f"{key}: {one} -> {two}"


def _by_key(rows: list[dict[str, Any]], keys: list[str]) -> dict[str, dict[str, Any]]:
    by_key: dict[str, dict[str, Any]] = {}
    times: Counter[str] = Counter()
    for row in rows:
        key = " | ".join(str(row[k]) for k in keys if row.get(k) is not None)
        times[key] += 1
        by_key[key if times[key] == 1 else f"{key} ({times[key]})"] = row
    return by_key


def report(by_kind: dict[str, list[tuple[str, str]]]) -> None:
    """Print each kind of difference with its count and first cases."""
    for kind, cases in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        print(f"{kind}: {len(cases)} in {len({name for name, _ in cases})} captures")
        for name, text in cases[:SHOWN]:
            print(f"    {name}: {text[:300]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--only", choices=("tests", "examples", "damaged"))
    parser.add_argument("--match", default="", help="part of the captures' names")
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(options.root.resolve()))
    dumps = {}
    for part in (options.only,) if options.only else ("tests", "examples", "damaged"):
        with tempfile.TemporaryDirectory() as folder:
            for name, path in files(part, Path(folder)):
                if options.match in name:
                    dumps[name] = dump(path, is_short=part == "damaged")
    options.out.write_text(json.dumps(dumps, indent=1, sort_keys=True) + "\n")
    print(f"{len(dumps)} captures: {options.out}", file=sys.stderr)
    if options.against is None:
        return 0
    changed = differences(json.loads(options.against.read_text()), dumps)
    report(changed)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
