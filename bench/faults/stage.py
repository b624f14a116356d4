"""The stage of the campaign: folders, networks and the cast, built once, healed after faults."""

import os
import shutil
import struct
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from app.submit import submit_jobs
from bench.faults.cast import MARK, Actor, python
from bench.faults.network import NEAR, FarHost, Proxy
from core.config import ROOT, DataDir
from core.errors import AppError
from core.spec import JobSpec
from core.states import ACTIVE
from db.connection import opened
from worker.celery_app import make_app

CLOCK_SOURCE = ROOT / "bench" / "faults" / "clock.c"
API_PORT, REDIS_PORT = 18601, 18679
UPLOAD_BYTES_PER_S = 600_000


@dataclass(slots=True)
class Disk:
    """A small file system of its own, where that is permitted."""

    path: Path
    is_own: bool

    @classmethod
    def make(cls, path: Path, size_mib: int, permitted: bool) -> "Disk":
        path.mkdir(parents=True)
        if permitted:
            options = f"size={size_mib}m"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
        return cls(path=path, is_own=permitted)

    def fill(self, leave_bytes: int) -> None:
        """Take all room but `leave_bytes`; others write meanwhile, so less may be left."""
        wanted = shutil.disk_usage(self.path).free - leave_bytes
        with (self.path / "ballast").open("wb") as file:
            while wanted > 0:
                try:
                    os.posix_fallocate(file.fileno(), 0, wanted)
                    return
                except OSError:
                    wanted -= 256 * 1024

    def empty(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)


class Stage:
    """Everything that the faults act on."""

    def __init__(self, root: Path, *, private: bool, pages: bool) -> None:
        self.root = root
        self.mark = uuid.uuid4().hex
        self.private = private
        self.disk = Disk.make(root / "dashboard", 1024, private)
        self.data = DataDir(root=self.disk.path)
        self.worker_disks = [
            Disk.make(root / f"worker{i}", 96, private) for i in range(2 + private)
        ]
        (root / "redis").mkdir()
        self.journal = root / "journal"
        self.journal.touch()
        self.clock = root / "clock"
        self.set_clock(0)
        self.has_clock = self._build_clock()
        self.proxy = Proxy(API_PORT, UPLOAD_BYTES_PER_S)
        self.far = FarHost() if private else None
        self.broker = f"redis://127.0.0.1:{REDIS_PORT}/0"
        self.env = self._environment()
        os.environ["WARPBOARD_BROKER"] = self.broker
        self.actors = self._cast(pages)
        self.run_ids: list[str] = []
        self.num_told_in_vain = 0

    def _environment(self) -> dict[str, str]:
        env = {**os.environ, MARK: self.mark, "PYTHONPATH": str(ROOT), "no_proxy": "*"}
        env |= {"WARPBOARD_DATA": str(self.data.root), "WARPBOARD_BROKER": self.broker}
        env |= {"WARPBOARD_PYTHON": str(ROOT / "bench" / "faults" / "program.py")}
        env |= {"FAULTS_JOURNAL": str(self.journal), "OPENBLAS_NUM_THREADS": "1"}
        return env

    def _build_clock(self) -> bool:
        """Compile what lets the wall clock jump; False without a C compiler."""
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self.root / "clock.so")]
        try:
            return subprocess.run([*command, str(CLOCK_SOURCE)], check=False).returncode == 0
        except FileNotFoundError:
            return False

    def set_clock(self, offset_s: int) -> None:
        """Let the wall clock of dashboard, ingest and workers jump; their monotonic one goes on."""
        with self.clock.open("r+b" if self.clock.exists() else "wb") as file:
            file.write(struct.pack("=q", offset_s))

    def _cast(self, pages: bool) -> dict[str, Actor]:
        host = "0.0.0.0" if self.private else "127.0.0.1"
        logs = self.root / "logs"
        logs.mkdir()
        timed = dict(self.env)
        if self.has_clock:
            library = str(self.root / "clock.so")
            timed |= {"LD_PRELOAD": library, "FAULTS_CLOCK": str(self.clock)}
        dashboard = python("-m", "app.serve", "--host", host, "--port", str(API_PORT))
        if not pages:
            dashboard.append("--no-pages")
        redis = ["redis-server", "--port", str(REDIS_PORT), "--bind", host, "--save", ""]
        redis += [
            "--protected-mode",
            "no",
            "--appendonly",
            "yes",
            "--dir",
            str(self.root / "redis"),
        ]
        commands = {"redis": (redis, self.env), "dashboard": (dashboard, timed)}
        commands["ingest"] = (python("-m", "app.ingest_worker"), timed)
        for number, disk in enumerate(self.worker_disks):
            commands[f"worker{number}"] = (self._worker(number, disk), timed)
        return {
            name: Actor(name, command, logs / f"{name}.log", env)
            for name, (command, env) in commands.items()
        }

    def _worker(self, number: int, disk: Disk) -> list[str]:
        """Return a worker's command: behind the proxy, direct, or on the far host."""
        ports = {0: self.proxy.port, 1: API_PORT, 2: API_PORT}
        host = "127.0.0.1"
        prefix: tuple[str, ...] = ()
        if number == 2 and self.far is not None:
            host, prefix = NEAR, self.far.prefix
        command = [*prefix, *python("-m", "worker", "--gpu", "cpu", "--data", str(disk.path))]
        command += ["--dashboard", f"http://{host}:{ports[number]}"]
        command += ["--broker", f"redis://{host}:{REDIS_PORT}/0"]
        return [*command, "--token-file", str(self.data.token_path)]

    def keep(self) -> None:
        for actor in self.actors.values():
            actor.keep()

    def rest(self, seconds: float) -> None:
        """Let time pass, with the restart policy at work."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.keep()
            time.sleep(0.1)

    def heal(self) -> None:
        """Take every lasting fault away."""
        self.proxy.mode = "pass"
        if self.far is not None:
            self.far.join()
        for disk in (self.disk, *self.worker_disks):
            disk.empty()

    def num_active(self) -> int:
        marks = ", ".join("?" * len(ACTIVE))
        with opened(self.data.db_path) as db:
            query = f"SELECT count(*) FROM runs WHERE status IN ({marks})"
            return int(db.execute(query, [str(s) for s in ACTIVE]).fetchone()[0])

    def submit(self, sleep_s: float, name: str) -> None:
        """Put one job into the queue as the Submit page does."""
        params = {"sleep_s": sleep_s, "number": len(self.run_ids)}
        job = JobSpec(workload="decode", params=params, profilers=("trace",), gpu="cpu")
        with opened(self.data.db_path) as db:
            before = {r[0] for r in db.execute("SELECT id FROM runs")}
            try:
                submit_jobs(db, self.data, [job], name)
            except AppError:
                self.num_told_in_vain += 1  # Redis is down: the run is queued, no message was sent
            self.run_ids += [r[0] for r in db.execute("SELECT id FROM runs") if r[0] not in before]

    def send_again(self, task: str, run_id: str, queue: str) -> bool:
        app = make_app("faults", self.broker, self.data.root)
        try:
            app.send_task(task, args=[run_id], queue=queue, retry=False)
        except Exception as error:  # Redis may be away just now
            print(f"not sent: {error}", file=sys.stderr)
            return False
        finally:
            app.close()
        return True

    def close(self) -> None:
        for name in reversed(self.actors):
            self.actors[name].stop()
        if self.far is not None:
            self.far.close()
