"""`python -m worker`: register this host's GPUs and run one Celery worker for each.

This process runs no job: it keeps the heartbeat, delivers what waits in the spool, restarts a
Celery worker that ended, and ends everything on SIGTERM or Ctrl-C. Killed, it leaves no process.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from core import VERSION
from core.config import ROOT, broker_url, data_dir, http_address
from core.console import LineParser, fail, refusal
from core.errors import AppError, UserError
from core.queues import device_queue, gpu_slug, model_queue
from core.restarts import Restarts
from worker import spool
from worker.celery_app import broker_complaint
from worker.client import DashboardAway, DashboardClient, Refused, version_complaint
from worker.health import note_alive
from worker.passes import GpuTarget
from worker.probe import probe
from worker.process import run_process
from worker.settings import (
    Place,
    WorkerSettings,
    celery_command,
    celery_environment,
    lock_identity,
    together,
)
from worker.targets import CPU, find_targets

LOG = logging.getLogger("warpboard.worker")
DEFAULT_HEARTBEAT_S = 5.0
SWEEP_S = 30.0
STAND_BY_S = 2.0
RESTART_DELAYS_S = (1.0, 2.0, 5.0, 15.0, 60.0)


def main(argv: list[str] | None = None) -> int:
    try:
        args = _parser().parse_args(argv)
    except UserError as error:
        return fail(str(error), error.exit_code, is_json=False)
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    os.umask(0o077)  # bundles, logs and the id are for the worker's user alone
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        host = WorkerHost(args, stop)
        return host.run()
    except AppError as error:
        return fail(str(error), error.exit_code, is_json=False)
    except OSError as error:
        return fail(refusal(error) or str(error), UserError.exit_code, is_json=False)
    except KeyboardInterrupt:  # told to stop while it stood by
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = LineParser(
        prog="warpboard worker",
        usage="warpboard worker --broker URL --dashboard URL [--token-file F] [options]",
        description=__doc__,
    )
    parser.add_argument(
        "--broker", help="redis://... without a password, or the embedded filesystem:// (default)"
    )
    parser.add_argument(
        "--broker-file",
        metavar="F",
        default=os.environ.get("WARPBOARD_BROKER_FILE"),
        help="file with redis://:PASSWORD@HOST:6379/0; default: WARPBOARD_BROKER_FILE",
    )
    parser.add_argument(
        "--dashboard",
        default=os.environ.get("WARPBOARD_DASHBOARD") or "http://127.0.0.1:8501",
        metavar="URL",
        help="default: WARPBOARD_DASHBOARD, else http://127.0.0.1:8501",
    )
    parser.add_argument(
        "--token-file",
        default=os.environ.get("WARPBOARD_TOKEN_FILE"),
        metavar="F",
        help="default: WARPBOARD_TOKEN_FILE, else worker.token in the data folder",
    )
    parser.add_argument("--data", metavar="DIR", help="spool and logs; default ./data")
    parser.add_argument("--gpu", default="all", help="ordinal, UUID, model, cpu or all (default)")
    parser.add_argument(
        "--stand-by",
        action="store_true",
        help="wait, instead of exiting, while another worker uses the GPUs of this data folder",
    )
    return parser


def _broker_file(args: argparse.Namespace) -> str | None:
    """Return the file with the broker's URL, if it is to be used.

    UserError for a password on the command line, which every user of the host can read.
    """
    if args.broker and "@" in args.broker:
        raise UserError(
            "--broker: a password on the command line can be read by all; put the URL into a file"
            " and name it with --broker-file"
        )
    if args.broker or os.environ.get("WARPBOARD_BROKER") or not args.broker_file:
        return None
    os.environ["WARPBOARD_BROKER_FILE"] = str(Path(args.broker_file).absolute())
    return os.environ["WARPBOARD_BROKER_FILE"]


class WorkerHost:
    """The Celery workers of this host and what is done beside them."""

    def __init__(self, args: argparse.Namespace, stop: threading.Event) -> None:
        self._stop = stop
        http_address("--dashboard", args.dashboard)
        self._data = data_dir(args.data).ensure()
        self._dashboard_url = args.dashboard
        self._broker_file = _broker_file(args)
        self._broker_url = args.broker or broker_url(self._data)
        self._token_file = Path(args.token_file or self._data.token_path).absolute()
        self._wanted = args.gpu
        self._id_file, self._worker_id = self._identity(args.stand_by)
        self._spool = self._data.spool
        self._heartbeat_s = DEFAULT_HEARTBEAT_S

    def _identity(self, stand_by: bool) -> tuple[IO[str], str]:
        """Lock the GPUs of this data folder; with `stand_by` wait for another worker's end."""
        is_told = False
        while True:
            try:
                return lock_identity(self._data, self._wanted)
            except UserError:
                if not stand_by:
                    raise
                if not is_told:
                    LOG.info("another worker has these GPUs; standing by")
                is_told = True
            if self._stop.wait(STAND_BY_S):
                raise KeyboardInterrupt

    def run(self) -> int:
        os.environ["WARPBOARD_DATA"] = str(self._data.root)
        targets = find_targets(self._wanted)
        facts = probe()
        places = together([self._place(model, target, facts) for model, target in targets])
        token = places[0].settings.load_token()
        if complaint := broker_complaint(self._broker_url):
            LOG.warning("%s; jobs start once it answers", complaint)
        client = DashboardClient(self._dashboard_url, token)
        record = self._record(places, facts)
        if not self._register(client, record):
            client.close()
            return 0
        threads = [
            threading.Thread(target=self._keep_running, args=(place,), name=place.name)
            for place in places
        ]
        threads.append(threading.Thread(target=self._sweep, args=(token,), name="sweep"))
        for thread in threads:
            thread.start()
        try:
            self._beat(client, places, facts, registered=record)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(timeout=20)
            client.close()
        return 0

    def _place(self, model: str, target: GpuTarget, facts: Mapping[str, Any]) -> Place:
        """Return one GPU's place; facts that only CUDA knows come from the probe."""
        uuid = target.facts.get("uuid")
        known: Mapping[str, Any] = next(
            (g for g in facts["gpus"] if uuid and g["uuid"] == uuid), {}
        )
        merged = {**known, **{k: v for k, v in target.facts.items() if v is not None}}
        device = str(uuid or f"{self._worker_id}/{merged.get('ordinal', 0)}")
        queues = (model_queue(model), device_queue(model, device))
        settings = WorkerSettings(
            worker_id=self._worker_id,
            dashboard_url=self._dashboard_url,
            token_file=str(self._token_file),
            broker_url="" if self._broker_file else self._broker_url,
            broker_file=self._broker_file,
            data_root=str(self._data.root),
            model=model,
            visible_devices=target.visible_devices,
            smi_selector=target.smi_selector,
            facts=merged,
        )
        return Place(
            name=gpu_slug(device if model != CPU else CPU), queues=queues, settings=settings
        )

    def _gpu_record(self, place: Place) -> dict[str, Any]:
        facts = place.settings.target.facts
        return {**facts, "model": place.settings.model, "queues": list(place.queues)}

    def _record(self, places: list[Place], facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "worker_id": self._worker_id,
            "version": VERSION,
            "queues": sorted({queue for place in places for queue in place.queues}),
            "gpus": [self._gpu_record(place) for place in places],
            "tools": facts["tools"],
            "permissions": facts["permissions"],
            "torch": facts["torch"],
            "checks": facts["checks"],
            "host_label": facts["host"]["label"],
        }

    def _register(self, client: DashboardClient, record: Mapping[str, Any]) -> bool:
        """Announce this worker, waiting for the dashboard; False when told to stop meanwhile."""
        warned = False
        while not self._stop.is_set():
            try:
                answer = client.register({**record, "clock_s": time.time()})
            except DashboardAway as error:
                if not warned:
                    LOG.warning("waiting for the dashboard: %s", error)
                warned = True
                self._stop.wait(2.0)
                continue
            except Refused as refusal:
                hint = "; check --token-file" if refusal.status in (401, 403) else ""
                raise UserError(f"{refusal}{hint}") from refusal
            self._heartbeat_s = float(answer.get("heartbeat_s") or DEFAULT_HEARTBEAT_S)
            complaint = version_complaint(str(answer.get("version") or VERSION))
            if complaint is not None and complaint[0]:
                raise UserError(complaint[1])
            if complaint is not None:
                LOG.warning(complaint[1])
            LOG.info("registered as %s: %s", self._worker_id, ", ".join(record["queues"]))
            return True
        return False

    def _beat(
        self,
        client: DashboardClient,
        places: list[Place],
        facts: Mapping[str, Any],
        registered: dict[str, Any],
    ) -> None:
        """Send heartbeats until stopped; `registered` is the dashboard's record of this worker.

        Registers again where the dashboard forgot us, and after a new measurement.
        """
        note_alive(self._data)
        while not self._stop.wait(self._heartbeat_s):
            note_alive(self._data)
            record = self._record(places, facts)
            try:
                if record != registered:
                    client.register({**record, "clock_s": time.time()})
                    registered = record
                for run_id in client.heartbeat(self._worker_id, spool.running_runs(self._spool)):
                    spool.ask_to_cancel(self._spool, run_id)
            except DashboardAway as error:
                LOG.info("no heartbeat: %s", error)
            except Refused as refusal:
                LOG.warning("heartbeat: %s", refusal)
                if refusal.status == 404:
                    self._register(client, record)
                    registered = record

    def _sweep(self, token: str) -> None:
        client = DashboardClient(self._dashboard_url, token, timeout_s=60)
        while not self._stop.is_set():
            try:
                spool.sweep(self._spool, client)
            except OSError:
                LOG.exception("spool")
            self._stop.wait(SWEEP_S)
        client.close()

    def _keep_running(self, place: Place) -> None:
        """Run the Celery worker of one place, restarting it after an unexpected exit."""
        restarts = Restarts(RESTART_DELAYS_S)
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                result = run_process(
                    celery_command(place),
                    stdout_path=self._data.logs / f"worker-{place.name}.out",
                    stderr_path=self._data.logs / f"worker-{place.name}.log",
                    cwd=ROOT,
                    env=celery_environment(place.settings),
                    should_cancel=self._stop.is_set,
                )
                ended = result.killed_by or f"code {result.returncode}"
            except OSError as error:  # the disk is full: its log cannot be written
                ended = str(error)
            if self._stop.is_set():
                return
            delay_s = restarts.delay_s(time.monotonic() - started)
            LOG.warning(
                "%s: worker ended (%s), starts again in %.0f s; see %s",
                place.name,
                ended,
                delay_s,
                self._data.logs,
            )
            self._stop.wait(delay_s)


if __name__ == "__main__":
    sys.exit(main())
