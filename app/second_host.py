"""What another GPU host needs to work for this dashboard, step by step, with this one's addresses.

No password and no token is in it: it says where they are.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from app.serve.addresses import WILDCARDS, is_loopback
from app.serve.publish import FOR_WORKERS
from app.stack import running_stack
from core.config import DataDir, broker_url
from core.errors import UserError

WORKERS_PUBLISH, REDIS_PUBLISH = FOR_WORKERS
BROKER_PORT = 6379
_EXAMPLE_PORT = 8502
_ELSEWHERE = "ADDRESS_OF_THIS_HOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: what it is for, and the commands."""

    title: str
    where: str
    "On which host."
    text: str
    commands: str
    is_done: bool = False


def steps(data: DataDir) -> list[Step]:
    """Return the steps from here to a registered worker on another host."""
    is_container = os.environ.get("WARPBOARD_BROKER_FILE", "").startswith("/secrets/")
    api, broker = workers_url(data), broker_place()
    host = _host_of(api) or _host_of(broker) or own_address() or _ELSEWHERE
    return [
        _open_api(api, host, is_container),
        _broker(broker, host, is_container),
        _token(is_container),
        _passwords(broker or f"{host}:{BROKER_PORT}"),
        Step(
            title="Start the worker",
            where="the GPU host",
            text="In a checkout of the same version, with a Python that has PyTorch. It appears "
            "here within seconds.",
            commands=f"./warpboard worker --dashboard {api or f'http://{host}:{_EXAMPLE_PORT}'}"
            " --token-file worker.token --broker-file broker.url",
        ),
    ]


def workers_url(data: DataDir) -> str | None:
    """Return the address of the workers' API as another host reaches it; None while it is shut."""
    if published := os.environ.get(WORKERS_PUBLISH):
        return f"http://{_reachable(published)}"
    listening = (running_stack(data) or {}).get("workers")
    return f"http://{_reachable(listening)}" if listening else None


def broker_place() -> str | None:
    """Return HOST:PORT of the broker as another host reaches it; None for one of this host alone.

    The password stays where it is.
    """
    if published := os.environ.get(REDIS_PUBLISH):
        return _reachable(published)
    try:
        parts = urlsplit(broker_url(DataDir(root=Path())))
    except UserError:
        return None
    if parts.hostname is None or is_loopback(parts.hostname):
        return None
    return f"{parts.hostname}:{parts.port or BROKER_PORT}"


def own_address() -> str | None:
    """Return this host's address in its network; None without one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address of documentation: a route is looked up
            address = str(probe.getsockname()[0])
        except OSError:
            return None
    return None if is_loopback(address) or address in WILDCARDS else address


def _reachable(place: str) -> str:
    """Return HOST:PORT with this host's address in place of `any address`."""
    host, _, port = place.rpartition(":")
    if host.strip("[]") in ("", *WILDCARDS):
        host = own_address() or _ELSEWHERE
    return f"{host}:{port}"


def _host_of(place: str | None) -> str | None:
    return place.removeprefix("http://").rpartition(":")[0] if place else None


def _open_api(api: str | None, host: str, is_container: bool) -> Step:
    title = "Open the workers' API"
    if api:
        text = f"Done: workers reach this dashboard at {api}. Pages are not served there."
        return Step(title=title, where="this host", text=text, commands="", is_done=True)
    command = f"./warpboard up --workers-host {host}"
    if is_container:
        command = (
            f"export {WORKERS_PUBLISH}={host}:{_EXAMPLE_PORT} {REDIS_PUBLISH}={host}:{BROKER_PORT}"
            "\ndocker compose -f docker-compose.yml -f docker-compose.hosts.yml up -d"
        )
    text = "It is shut: only this host reaches it. Start the dashboard again so:"
    return Step(title=title, where="this host", text=text, commands=command)


def _broker(broker: str | None, host: str, is_container: bool) -> Step:
    title = "Have a broker that both hosts reach"
    if broker:
        text = f"Done: Redis at {broker}."
        return Step(title=title, where="this host", text=text, commands="", is_done=True)
    if is_container:
        text = "The step before publishes Redis too."
        return Step(title=title, where="this host", text=text, commands="")
    text = (
        "The embedded broker serves this host alone. Start Redis with the line 'requirepass"
        " PASSWORD' in its configuration file, and the dashboard with the file that names it:"
    )
    commands = (
        f"(umask 077; cat > broker.url)   # redis://:PASSWORD@{host}:{BROKER_PORT}/0, then Ctrl-D\n"
        f"WARPBOARD_BROKER_FILE=broker.url ./warpboard up --workers-host {host}"
    )
    return Step(title=title, where="this host", text=text, commands=commands)


def _token(is_container: bool) -> Step:
    prefix = "docker compose exec dashboard python3 -m app.cli" if is_container else "./warpboard"
    return Step(
        title="Make a token",
        where="this host",
        text="It is printed once. Each host has its own, so that one alone can be revoked.",
        commands=f"{prefix} token NAME_OF_THE_GPU_HOST",
    )


def _passwords(broker: str) -> Step:
    return Step(
        title="Carry token and password over",
        where="the GPU host",
        text="Two files that only the worker's user can read: a password on a command line is read"
        " by every user of a host. The password stands in broker.url of this host.",
        commands="(umask 077; cat > worker.token)   # paste the token, then Ctrl-D\n"
        f"(umask 077; cat > broker.url)     # redis://:PASSWORD@{broker}/0",
    )
