"""Time the trace reader on a grown real trace: `python -m bench.trace [--mib 1024]`.

The real training-step trace is repeated, each time shifted in time and correlation id, to a file of
the wanted size. In one run: decompress + tokenise it (ijson's C backend, no work on the tokens),
then read it to complete tables. Goal: at most 3 times the tokeniser's time. Each part runs in a
process of its own, so that its peak memory is its own.
"""

import argparse
import gzip
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests" / "data" / "h100" / "kineto" / "train_bf16.json.gz"
_SHIFT_US = 120_000
_SHIFT_IDS = 100_000
_TIME = re.compile(rb'"ts": (\d+)(\.\d+)')
_IDS = re.compile(rb'"(correlation|External id)": (\d+)')
GOAL = 3.0


def grow(source: Path, dest: Path, size_bytes: int) -> int:
    """Write a trace of at least `size_bytes` (uncompressed), gzip; return its exact size."""
    text = gzip.decompress(source.read_bytes())
    head, rest = text.split(b'"traceEvents": [', 1)
    body, tail = rest.rsplit(b"]", 1)
    window = re.compile(
        rb'\s*\{[^{}]*"cat": "Trace"[^{}]*\{[^{}]*\}\s*\},|\s*\{[^{}]*Record Window End[^{}]*\},?'
    )
    body = window.sub(b"", body).rstrip().rstrip(b",")
    num_bytes = 0
    with gzip.open(dest, "wb", compresslevel=1) as out:
        num_bytes += out.write(head + b'"traceEvents": [')
        for copy in range(max(1, -(-size_bytes // len(body)))):
            shifted = _shifted(body, copy)
            num_bytes += out.write((b"," if copy else b"") + shifted)
        num_bytes += out.write(b"]" + tail)
    return num_bytes


def _shifted(body: bytes, copy: int) -> bytes:
    later = _TIME.sub(lambda m: b'"ts": %d%s' % (int(m[1]) + copy * _SHIFT_US, m[2]), body)
    return _IDS.sub(lambda m: b'"%s": %d' % (m[1], int(m[2]) + copy * _SHIFT_IDS), later)


def tokenise(path: Path) -> dict[str, float]:
    """Decompress and tokenise; the floor that a streaming reader is measured against."""
    import ijson

    with gzip.open(path, "rb") as stream:
        num_tokens = sum(1 for _ in ijson.basic_parse(stream))
    return {"tokens": num_tokens}


def read(path: Path) -> dict[str, float]:
    """Read to complete tables."""
    from analysis.readers import read as read_capture

    tables = read_capture(path)
    return {"kernels": tables.summary["num_kernels"], "warnings": len(tables.warnings)}


def _measure(what: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.trace", "--part", what, "--file", str(path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def _part(what: str, path: Path) -> None:
    started = time.monotonic()
    figures = {"tokenise": tokenise, "read": read}[what](path)
    figures["seconds"] = round(time.monotonic() - started, 2)
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        _part(options.part, options.file)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grown.json.gz"
        num_bytes = grow(SOURCE, path, options.mib << 20)
        floor, ours = _measure("tokenise", path), _measure("read", path)
        packed_bytes = path.stat().st_size
    ratio = ours["seconds"] / floor["seconds"]
    print(f"Trace of {num_bytes / 2**20:.0f} MiB ({packed_bytes / 2**20:.0f} MiB gzip)")
    print("| part | seconds | peak MiB |\n| --- | ---: | ---: |")
    print(f"| decompress + tokenise (ijson) | {floor['seconds']} | {floor['peak_mib']} |")
    print(f"| read to complete tables | {ours['seconds']} | {ours['peak_mib']} |")
    print(f"| ratio (goal: at most {GOAL:g}) | {ratio:.2f} | |")
    print(
        json.dumps(
            {
                "bytes": num_bytes,
                "kernels": ours["kernels"],
                "tokenise_s": floor["seconds"],
                "read_s": ours["seconds"],
                "ratio": round(ratio, 3),
                "peak_rss_mib": ours["peak_mib"],
            }
        )
    )
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
