"""`warpboard up`: everything on this host, until Ctrl-C."""

import signal
import threading
from argparse import ArgumentParser, Namespace

from app.cli.output import note
from core.config import DataDir
from core.console import MAX_PORT, whole_number

POLL_S = 0.25


def arguments(parser: ArgumentParser) -> None:
    number = whole_number(1, MAX_PORT)
    parser.add_argument("--port", type=number, default=8501, help="port to listen on")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--open-to-network",
        action="store_true",
        help="serve pages to other hosts without a login, to anyone who can reach them",
    )
    parser.add_argument(
        "--workers-host",
        metavar="ADDRESS",
        help="an address that serves only the API, for workers on other hosts",
    )
    parser.add_argument("--workers-port", type=number, default=8502, help="port of --workers-host")
    parser.add_argument("--no-demo", action="store_true", help="load no example runs")
    parser.add_argument("--no-worker", action="store_true", help="start no worker on this host")
    parser.add_argument(
        "--dashboard-only",
        action="store_true",
        help="start only pages and API: ingest and workers are started elsewhere",
    )
    parser.add_argument("--gpu", default="all", help="GPUs of the worker: all, cpu, ordinal, model")


def run(options: Namespace, data: DataDir) -> int:
    from app.stack import Stack, StackOptions

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    stack = Stack(
        data,
        StackOptions(
            host=options.host,
            port=options.port,
            is_open_to_network=options.open_to_network,
            workers_host=options.workers_host,
            workers_port=options.workers_port,
            has_ingest=not options.dashboard_only,
            has_worker=not (options.no_worker or options.dashboard_only),
            has_demo=not options.no_demo,
            worker_gpu=options.gpu,
        ),
        note,
    )
    stack.start()
    try:
        note(f"dashboard: {stack.pages_url}  (data in {data.root}; Ctrl-C stops everything)")
        while not stop.wait(POLL_S):
            stack.step()
        note("stopping")
    finally:
        stack.stop()
    return 0
