"""Start the ranks of one pass as torchrun does, and end them together.

`python -m worker.ranks PLAN` reads a JSON list with one {"command", "folder", "events"} a rank.
Each gets torchrun's environment and a session of its own; its lines come out with its rank first.
When one fails (crash, out of memory, killed) the others, which would wait for it in a collective,
are ended. What all of them measured comes out as one result line; see `merge_results`.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from core.supervisor import descendants
from worker.clocks import die_with_parent
from worker.outcomes import result_of

GRACE_S = 5.0
"""From SIGTERM to SIGKILL, when another rank has failed."""
SETTLE_S = 1.0
"""How long a failure waits for another rank's own, which may be the cause of the first."""
RESULT_FILE = "result.json"
STOPPED = "ranks when stopped: "
"""Start of the line with each rank's progress when this process was stopped."""
COLLECTIVE_WORDS = ("DistBackendError", "Connection closed by peer", "Connection reset by peer")
"""What a rank says of whose neighbour is gone: a consequence, not the cause."""


@dataclass(slots=True)
class RankProcess:
    """One started rank."""

    rank: int
    process: "subprocess.Popen[bytes]"
    folder: Path
    events: Path
    threads: list[threading.Thread] = field(default_factory=list)
    result: dict[str, Any] | None = None
    fell: bool = False
    "It had failed before this process ended the others."

    @property
    def has_failed(self) -> bool:
        """Whether it has ended otherwise than well."""
        if self.process.poll() is None:
            return False
        return bool(self.process.returncode) or not self.is_ok

    @property
    def is_ok(self) -> bool:
        return self.result is not None and self.result.get("status") == "ok"

    @property
    def is_consequence(self) -> bool:
        """Whether it failed because another rank was gone."""
        error = str((self.result or {}).get("error", ""))
        return any(words in error for words in COLLECTIVE_WORDS)

    def settle(self) -> None:
        """Read what is left of its output; after its end."""
        for thread in self.threads:
            thread.join(timeout=2.0)


def rank_environment(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    """Return torchrun's variables of a rank, and what keeps one host's collectives on it.

    NVLink multicast stays off: not every host allows it, and a run should not depend on that.
    """
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "NCCL_NVLS_ENABLE": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    ranks = start_ranks(plan)
    try:
        wait_for_ranks(ranks, stop)
        if stop.is_set():
            print(STOPPED + how_far(ranks), file=sys.stderr, flush=True)
    finally:
        end_ranks(ranks)
    result = merge_results(ranks)
    print(json.dumps(result), flush=True)
    return 0 if result["status"] in ("ok", "oom") else 3


def start_ranks(plan: Sequence[Mapping[str, Any]]) -> list[RankProcess]:
    """Start one process per rank; OSError if a command cannot be started."""
    port = _free_port()
    ranks: list[RankProcess] = []
    try:
        for rank, entry in enumerate(plan):
            process = subprocess.Popen(
                entry["command"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | rank_environment(rank, len(plan), port),
                preexec_fn=die_with_parent,
            )
            started = RankProcess(rank, process, Path(entry["folder"]), Path(entry["events"]))
            ranks.append(started)
            _follow(started)
    except OSError:
        end_ranks(ranks)
        raise
    return ranks


def _free_port() -> int:
    """Return a free port below those that the system gives to connections of its own.

    Rank 0 listens on it only after seconds, when PyTorch is loaded.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _follow(rank: RankProcess) -> None:
    assert rank.process.stdout is not None and rank.process.stderr is not None
    for stream in (rank.process.stdout, rank.process.stderr):
        thread = threading.Thread(target=_copy_lines, args=(rank, stream), daemon=True)
        thread.start()
        rank.threads.append(thread)


def _copy_lines(rank: RankProcess, stream: IO[bytes]) -> None:
    """Hand lines on with the rank before them; keep the result line, which is not for eyes."""
    for raw in stream:
        line = raw.decode(errors="replace").rstrip("\r\n")
        result = result_of(line)
        if result is not None:
            rank.result = result
            (rank.folder / RESULT_FILE).write_text(json.dumps(result))
        elif line.strip():
            print(f"[rank{rank.rank}] {line}", file=sys.stderr, flush=True)


def wait_for_ranks(ranks: Sequence[RankProcess], stop: threading.Event) -> None:
    """Return when all have ended, one has failed or `stop` is set."""
    while not stop.wait(0.05):
        for rank in ranks:
            if rank.process.poll() is not None:
                rank.settle()
        if all(rank.process.poll() is not None for rank in ranks):
            return
        if any(rank.has_failed for rank in ranks):
            stop_at = time.monotonic() + SETTLE_S
            while time.monotonic() < stop_at and not stop.is_set():
                time.sleep(0.05)
            for rank in ranks:
                rank.fell = rank.has_failed
            return


def end_ranks(ranks: Sequence[RankProcess]) -> None:
    """End every rank's tree: SIGTERM first, SIGKILL after a grace."""
    alive = [rank for rank in ranks if rank.process.poll() is None]
    trees = {rank.rank: [rank.process.pid, *descendants(rank.process.pid)] for rank in alive}
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for pids in trees.values():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and any(r.process.poll() is None for r in alive):
            time.sleep(0.02)
        alive = [rank for rank in alive if rank.process.poll() is None]
        if not alive:
            break
    for rank in ranks:
        rank.settle()


def how_far(ranks: Sequence[RankProcess]) -> str:
    """Return the last progress of each rank, e.g. `rank 0 measure 3/20, rank 1 ended`."""
    return ", ".join(f"rank {rank.rank} {_last_progress(rank)}" for rank in ranks)


def _last_progress(rank: RankProcess) -> str:
    if rank.is_ok:  # else it runs, or what stopped this process has reached it first
        return "ended"
    last: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for line in rank.events.read_text().splitlines():
            with contextlib.suppress(ValueError):
                last = json.loads(line)
    if "stage" not in last:
        return "starting"
    return f"{last['stage']} {last['done']}/{last['total']}"


def merge_results(ranks: Sequence[RankProcess]) -> dict[str, Any]:
    """Return the result of the job: rank 0's, with what only all ranks together tell.

    An iteration lasts as long as its slowest rank; peaks of memory are those of the fullest rank;
    metrics are means over the ranks, as NCCL's own tests report bandwidth. `ranks` has each rank's
    own. Where one failed, the result is that rank's.
    """
    failed = _first_cause(ranks)
    base = dict((failed or ranks[0]).result or {"workload": None})
    base["ranks"] = [_own_part(rank) for rank in ranks]
    base["captures"] = []
    base["warnings"] = _all_warnings(ranks)
    if failed is not None:
        return base | _failure(failed)
    results = [rank.result or {} for rank in ranks]
    base["samples_ns"] = _slowest([r.get("samples_ns", []) for r in results])
    phases: Mapping[str, Any] = base.get("phase_samples_ns") or {}
    base["phase_samples_ns"] = {
        name: _slowest([r.get("phase_samples_ns", {}).get(name, []) for r in results])
        for name in phases
    }
    base["metrics"] = _mean_metrics([r.get("metrics", []) for r in results])
    memories = [r.get("memory") or {} for r in results]
    base["memory"] = {k: max(m.get(k, 0) for m in memories) for k in memories[0]}
    return base


def _first_cause(ranks: Sequence[RankProcess]) -> RankProcess | None:
    """Return the rank that failed first, not because another was lost; None if none."""
    fell = [rank for rank in ranks if rank.fell] or [r for r in ranks if r.has_failed]
    out = [rank for rank in fell if (rank.result or {}).get("status") == "oom"]
    own = [rank for rank in fell if not rank.is_consequence]
    return next(iter([*out, *own, *fell]), None)


def _own_part(rank: RankProcess) -> dict[str, Any]:
    result = rank.result or {}
    names = ("status", "device", "memory", "samples_ns", "error")
    own = {name: result[name] for name in names if name in result}
    return {"rank": rank.rank, "returncode": rank.process.returncode, **own}


def _all_warnings(ranks: Sequence[RankProcess]) -> list[dict[str, str]]:
    """Return each warning once, with the ranks that gave it where not all did."""
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank in ranks:
        for warning in (rank.result or {}).get("warnings", ()):
            ranks_of.setdefault((warning["code"], warning["message"]), []).append(rank.rank)
    return [
        {"code": code, "message": message if len(of) == len(ranks) else f"rank {of[0]}: {message}"}
        for (code, message), of in ranks_of.items()
    ]


def _failure(failed: RankProcess) -> dict[str, Any]:
    """Return status and error of a job whose rank failed; the error names the rank."""
    result = failed.result or {}
    if result.get("status") == "oom":
        return {"oom": {**(result.get("oom") or {}), "rank": failed.rank}}
    code = failed.process.returncode
    error = result.get("error") or f"ended with code {code} and without a result"
    failure: dict[str, Any] = {"status": "failed"}
    if code is not None and code < 0 and result.get("status") != "failed":
        failure["killed_by_signal"] = -code
        if -code == signal.SIGKILL:
            return failure | {"error": f"rank {failed.rank}", "failed_rank": failed.rank}
        error = f"ended by {signal.Signals(-code).name}"
    return failure | {"error": f"rank {failed.rank}: {error}", "failed_rank": failed.rank}


def _mean_metrics(metrics: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    values: dict[tuple[str, str, str], list[float]] = {}
    for metric in (m for of_rank in metrics for m in of_rank):
        key = (metric["name"], metric["unit"], metric["phase"])
        values.setdefault(key, []).append(metric["value"])
    return [
        {"name": name, "value": sum(of_ranks) / len(of_ranks), "unit": unit, "phase": phase}
        for (name, unit, phase), of_ranks in values.items()
    ]


def _slowest(samples: Sequence[Sequence[int]]) -> list[int]:
    return [max(values) for values in zip(*samples, strict=False)]


if __name__ == "__main__":
    sys.exit(main())
