#!/usr/bin/env python3
"""Stands in for `python -m workloads NAME` in the fault campaign: the protocol without PyTorch.

A real workload costs seconds of imports; the campaign is about what happens between processes. It
notes each start, so that a run that is run twice is seen, and leaves a real PyTorch trace.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TRACE = Path(__file__).resolve().parents[2] / "tests/data/h100/kineto/train_bf16.json.gz"


def main(argv: list[str]) -> int:
    """Run one pass as `worker.profilers` asks for it."""
    if argv[0] != "-m":  # the probe asks which PyTorch there is
        print(json.dumps({"error": "a stand-in without PyTorch"}))
        return 0
    name, rest = argv[2], argv[3:]
    params = json.loads(rest[rest.index("--spec") + 1])
    pass_name = rest[rest.index("--pass") + 1]
    events_fd = int(rest[rest.index("--events-fd") + 1])
    out = Path(rest[rest.index("--out") + 1])
    if pass_name == "clean":
        _note_start()
    # A grandchild, so that ending a job's whole tree is put to the test.
    child = subprocess.Popen(["sleep", str(params["sleep_s"])])
    for done in range(10):
        record = {"event": "progress", "stage": "measure", "done": done, "total": 10}
        os.write(events_fd, (json.dumps(record) + "\n").encode())
        print(f"step {done}", flush=True)
        time.sleep(params["sleep_s"] / 10)
    child.wait()
    captures = []
    if pass_name == "trace":
        shutil.copyfile(TRACE, out / "trace.json.gz")
        captures = [{"path": "trace.json.gz", "kind": "torch_trace"}]
    result = {"schema_version": 1, "workload": name, "params": params, "pass": pass_name}
    result |= {"status": "ok", "samples_ns": [2_310_000 + i for i in range(12)]}
    result |= {"device": {"name": "cpu"}, "environment": {}, "warnings": [], "captures": captures}
    print(json.dumps(result))
    return 0


def _note_start() -> None:
    """Append this run to the journal; the folder we work in is spool/RUN/.work/clean-0."""
    run_id = Path.cwd().parts[-3]
    line = f"{run_id} {os.getpid()}\n".encode()
    fd = os.open(os.environ["FAULTS_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line)
    os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
