"""Jobs over several GPUs of one host: no deadlock, no starvation, nothing held after an end."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from core.config import ROOT
from worker.gpu_locks import HeldGpus

GPUS = ("g0", "g1")


def never() -> bool:
    return False


def test_two_jobs_over_all_gpus_take_turns(tmp_path: Path) -> None:
    inside: list[str] = []
    most = []

    def work(own: str) -> None:
        for _ in range(3):
            held = HeldGpus(tmp_path, GPUS, own)
            held.take_own(never)
            held.take_several(2, never)
            inside.append(own)
            most.append(len(inside))
            time.sleep(0.01)
            inside.remove(own)
            held.close()

    threads = [threading.Thread(target=work, args=(own,), daemon=True) for own in GPUS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert not any(thread.is_alive() for thread in threads)
    assert len(most) == 6 and max(most) == 1


def test_single_gpu_jobs_do_not_overtake_one_that_gathers(tmp_path: Path) -> None:
    stop = threading.Event()

    def single_jobs() -> None:
        while not stop.is_set():
            held = HeldGpus(tmp_path, GPUS, "g1")
            if held.take_own(stop.is_set):
                time.sleep(0.02)
            held.close()

    thread = threading.Thread(target=single_jobs, daemon=True)
    thread.start()
    several = HeldGpus(tmp_path, GPUS, "g0")
    started = time.monotonic()

    names = several.take_several(2, lambda: time.monotonic() - started > 20)

    stop.set()
    several.close()
    thread.join(timeout=10)
    assert names == ["g0", "g1"]


def test_a_single_gpu_job_runs_beside_one_that_does_not_need_its_gpu(tmp_path: Path) -> None:
    several = HeldGpus(tmp_path, ("g0", "g1", "g2"), "g0")
    single = HeldGpus(tmp_path, ("g0", "g1", "g2"), "g2")

    assert several.take_several(2, never) == ["g0", "g1"]
    assert single.take_own(never)


def test_a_cancelled_wait_holds_nothing(tmp_path: Path) -> None:
    busy = HeldGpus(tmp_path, GPUS, "g1")
    busy.take_own(never)
    several = HeldGpus(tmp_path, GPUS, "g0")

    assert several.take_several(2, lambda: True) is None

    assert HeldGpus(tmp_path, GPUS, "g0").take_own(lambda: True)


def test_a_killed_process_gives_its_gpus_back(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from worker.gpu_locks import HeldGpus;"
        "held = HeldGpus(Path(sys.argv[1]), ('g0', 'g1'), 'g0');"
        "held.take_several(2, lambda: False); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"

    holder.kill()
    holder.wait()

    assert HeldGpus(tmp_path, GPUS, "g1").take_several(2, lambda: True) == ["g1", "g0"]
