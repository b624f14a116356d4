"""Print what `bench/measure_ranks.sh` left: jobs, all-reduce by size, the newest failures."""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

NUM_FAILURES, NUM_LINES = 5, 12


def main() -> int:
    out = Path(sys.argv[1])
    manifests = {p.parent.name: json.loads(p.read_text()) for p in out.glob("*/manifest.json")}
    print(f"{'job':34} {'status':9} {'ms':>9} {'tokens/s':>10} {'of ideal':>8}  passes")
    for name, manifest in sorted(manifests.items()):
        print(_line(name, manifest, manifests))
    for name, manifest in sorted(manifests.items()):
        if manifest["job"]["workload"] == "allreduce":
            _print_sizes(name, manifest)
    failed = _failures(out, manifests)
    for log in failed[:NUM_FAILURES]:
        print(f"\n--- {log.stem}")
        print("\n".join(log.read_text(errors="replace").splitlines()[-NUM_LINES:]))
    print(f"\n{len(manifests)} bundles, {len(failed)} jobs with a failure")
    return int(bool(failed))


def _line(name: str, manifest: dict[str, Any], manifests: dict[str, Any]) -> str:
    rate, alone = _rate(manifest), _rate(manifests.get(_baseline(name), {}))
    ranks = manifest["job"]["params"]["gpus"]
    ideal = f"{rate / alone / ranks:8.1%}" if rate and alone and ranks > 1 else " " * 8
    passes = ", ".join(f"{p['pass']} {p['outcome']}" for p in manifest["passes"])
    samples = _samples(manifest)
    latency = f"{median(samples) / 1e6:9.3f}" if samples else f"{'-':>9}"
    tokens = f"{rate:10.0f}" if rate else f"{'-':>10}"
    return f"{name:34} {manifest['status']:9} {latency} {tokens} {ideal}  {passes}"


def _baseline(name: str) -> str:
    """Return the job of one rank that a job of several is compared with."""
    way, preset, *_ = name.removeprefix("straggler-").split("-")
    return f"{way}-{preset}-strong-1"


def _samples(manifest: dict[str, Any]) -> list[int]:
    passes = manifest.get("passes", ())
    return [ns for p in passes if p["pass"] == "clean" for ns in p["result"].get("samples_ns", ())]


def _rate(manifest: dict[str, Any]) -> float | None:
    samples = _samples(manifest)
    clean = [p for p in manifest.get("passes", ()) if p["pass"] == "clean"]
    tokens = clean[0]["result"].get("cost", {}).get("num_tokens") if clean else None
    return tokens / median(samples) * 1e9 if tokens and samples else None


def _print_sizes(name: str, manifest: dict[str, Any]) -> None:
    clean: dict[str, Any] = next(
        (p["result"] for p in manifest["passes"] if p["pass"] == "clean"), {}
    )
    values = {(m["phase"], m["name"]): m["value"] for m in clean.get("metrics", ())}
    sizes = dict.fromkeys(phase for phase, _ in values if phase)
    print(f"\n{name}: {'size':>8} {'us a call':>10} {'algbw GB/s':>11} {'busbw GB/s':>11}")
    for size in sizes:
        call, algorithm, bus = (
            values[size, key]
            for key in ("call_latency_us", "algorithm_gbyte_per_s", "bus_gbyte_per_s")
        )
        print(f"{'':{len(name) + 2}}{size:>8} {call:10.1f} {algorithm:11.3f} {bus:11.3f}")


def _failures(out: Path, manifests: dict[str, Any]) -> list[Path]:
    """Return the logs of jobs that left no bundle or had a pass that failed, newest first."""
    logs = [p for p in out.glob("*.txt") if p.name != "jobs.txt"]
    bad = [log for log in logs if not _is_good(manifests.get(log.stem))]
    return sorted(bad, key=lambda log: log.stat().st_mtime, reverse=True)


def _is_good(manifest: dict[str, Any] | None) -> bool:
    passes = (manifest or {}).get("passes", ())
    return bool(manifest) and all(p["outcome"] == "ok" for p in passes)


if __name__ == "__main__":
    sys.exit(main())
