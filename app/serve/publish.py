"""Whether pages may be reached from other hosts: a decision of the operator, never an accident."""

import ipaddress
import os
import re

from app.serve.addresses import base_path, is_loopback, published_host
from app.serve.login import Login, load_login
from core.errors import UserError

VARIABLE = "WARPBOARD_OPEN_TO_NETWORK"
FOR_WORKERS = ("WARPBOARD_WORKERS_PUBLISH", "WARPBOARD_REDIS_PUBLISH")
"""What docker-compose.hosts.yml publishes for workers of other hosts."""
_PLACE = re.compile(
    r"(?:\[(?P<six>[0-9a-fA-F:.]{2,45})\]|(?P<four>[0-9.]{7,15})):(?P<port>[0-9]{1,5})"
)
WHO_MAY = (
    "everybody who reaches this address can read every run and log, submit and cancel jobs on your"
    " GPUs, import files and delete runs; nobody is asked who they are"
)


def is_open_to_network(asked: bool) -> bool:
    """Say whether pages without a login were asked for: by the option, or by the variable."""
    return asked or os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes")


def who_reaches(address: str, login: Login | None) -> str:
    """Return in one sentence who reaches the pages, for `up` and `doctor`."""
    host = published_host(address)
    if is_loopback(host):
        who = "this host alone reaches the pages"
        return f"{who}, after a login" if login else f"{who}; its users need no login"
    if login is None:
        return f"pages on {host} are open: {WHO_MAY}"
    access = login.access
    allowed = [*sorted(access.users), *(f"everybody @{d}" for d in sorted(access.domains))]
    names = "everybody whom the provider lets in" if access.is_anyone else ", ".join(allowed)
    return f"pages on {host} want a login: {names}"


def check_publishing(address: str, *, is_asked: bool) -> str:
    """Return who reaches the pages; UserError where they would be open without being asked for."""
    login = load_login(base_path())
    host = published_host(address)
    if login is None and not is_loopback(host) and not is_open_to_network(is_asked):
        raise UserError(
            f"pages on {host} would be open to everybody who reaches it. Workers of other hosts"
            " need none: keep pages on 127.0.0.1 and give workers the API alone with"
            f" --workers-host {host}. Else configure a login (docs/permissions.md), or say"
            f" --open-to-network ({VARIABLE}=1)"
        )
    return who_reaches(address, login)


def check_for_workers() -> None:
    """Raise UserError where a port for workers is published without saying on which address.

    Compose takes a port alone for every address of the host.
    """
    for variable in FOR_WORKERS:
        place = os.environ.get(variable, "")
        if place and not _is_place(place):
            raise UserError(
                f"{variable}={place[:80]!r} is not an address and a port, as 10.0.0.5:6379. A port"
                " alone would be open on every address of this host: name the one that workers"
                " reach, or 0.0.0.0 where it is to be every one"
            )


def _is_place(text: str) -> bool:
    match = _PLACE.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        return False
    try:
        ipaddress.ip_address(match["six"] or match["four"])
    except ValueError:
        return False
    return True
