"""Where the dashboard is reached: addresses, the host names it answers to, its path."""

import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::")
_BASE_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)+\Z")
_MAX_BASE_PATH_CHARS = 200
OWN_PATHS = frozenset(
    [
        "api",
        "auth",
        "component",
        "login",
        "media",
        "oauth2callback",
        "perfetto",
        "static",
        "vendor",
        "_stcore",
    ]
)
"""First parts of addresses that the server itself has below its base path."""


def published_host(address: str) -> str:
    """Return the address that people reach pages under.

    The one they listen on, but for a container: docker-compose.yml tells it where its port is
    published. Not by WARPBOARD_PUBLISH, which a shell may have for Compose where nothing is in one.
    """
    published = os.environ.get("WARPBOARD_CONTAINER_PORT", "").strip()
    if not published:
        return address
    if published.isdigit():  # a port alone: on all addresses
        return WILDCARDS[0]
    if published.startswith("["):
        return published[1:].partition("]")[0]
    return published.rpartition(":")[0] if published.count(":") == 1 else published


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The other containers on the networks of this one: jobs run in some of them."""

    networks: tuple[ipaddress.IPv4Network, ...] = ()
    not_them: frozenset[str] = frozenset()
    "Gateways, from which the host comes, and this container itself."

    def has(self, address: str) -> bool:
        """Say whether an address is another container's."""
        try:
            parsed = ipaddress.IPv4Address(address.removeprefix("::ffff:"))
        except ValueError:
            return False
        return str(parsed) not in self.not_them and any(parsed in n for n in self.networks)


NOBODY = Neighbours()


def neighbours(routes: Path = Path("/proc/net/route")) -> Neighbours:
    """Return the other containers where this one's pages are published on loopback; else nobody.

    They reach the pages without a published port, whatever Host they name.
    """
    if not os.environ.get("WARPBOARD_CONTAINER_PORT") or not is_loopback(published_host("")):
        return NOBODY
    networks, gateways = [], []
    try:
        rows = [line.split() for line in routes.read_text().splitlines()[1:]]
        own = socket.gethostbyname_ex(socket.gethostname())[2]
    except OSError:
        return NOBODY
    for _, target, gateway, _, _, _, _, mask, *_ in rows:
        if gateway != "00000000":
            gateways.append(_address(gateway))
        elif int(mask, 16):  # a network, not all that lies behind a device
            networks.append(ipaddress.IPv4Network((_address(target), _address(mask))))
    firsts = [str(next(network.hosts())) for network in networks]  # a bridge's own end
    return Neighbours(networks=tuple(networks), not_them=frozenset([*gateways, *own, *firsts]))


def _address(text: str) -> str:
    """Return an address as it stands in `/proc/net/route`."""
    return socket.inet_ntoa(int(text, 16).to_bytes(4, "little"))


def is_loopback(host: str) -> bool:
    """Say whether an address is reached from this host alone."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Say whether a host is an IP address, which no foreign DNS name can resolve to."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def client_of(address: str) -> str:
    """Return the key that limits count a peer by: its address, or its /64 network for IPv6.

    One host has a whole such network, and an address of it for every request.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def named_hosts() -> tuple[str, ...]:
    """Return the host names of WARPBOARD_HOSTS: those of a proxy in front, for example."""
    chosen = os.environ.get("WARPBOARD_HOSTS", "").split(",")
    return tuple(name.strip().lower() for name in chosen if name.strip())


def served_hosts(address: str) -> tuple[str, ...]:
    """Return the host names that pages are served under; `*` is any.

    WARPBOARD_HOSTS names them. Without it they are this host's own: a web page elsewhere could have
    its own name lead here, and use the dashboard through its reader's browser (DNS rebinding).
    """
    if named := named_hosts():
        return named
    host = published_host(address)
    if is_loopback(host):
        return LOOPBACK
    own = socket.gethostname().lower()
    names = (host.lower(), own, own.partition(".")[0])
    return tuple(dict.fromkeys((*LOOPBACK, *(n for n in names if n and n not in WILDCARDS))))


def base_path() -> str:
    """Return the path that a proxy serves the dashboard under, as `/warpboard`; "" is none.

    WARPBOARD_BASE_PATH; Streamlit's own variable is taken too.
    """
    chosen = os.environ.get("WARPBOARD_BASE_PATH")
    text = (chosen or os.environ.get("STREAMLIT_SERVER_BASE_URL_PATH") or "").strip("/ ")
    if not text:
        return ""
    if not _BASE_PATH.match(f"/{text}") or len(text) > _MAX_BASE_PATH_CHARS:
        raise UserError(f"WARPBOARD_BASE_PATH: {text[:80]!r} is not a path such as /warpboard")
    if text.partition("/")[0].lower() in OWN_PATHS:
        raise UserError(f"WARPBOARD_BASE_PATH: /{text[:80]} is an address of the dashboard's own")
    return f"/{text}"
