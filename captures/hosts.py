"""Which texts name a host: `HOST:PORT`, or a full host name without a port.

A colon and a number stand behind much else: a line of a file or module, a device (`cuda:0`), a
rank, a size, a time of day. So the host must look like one, or the port be that of a service.
"""

import re
from collections.abc import Iterator

_A = re.ASCII
_PORT = re.compile(r":(?<=[\w\]]:)(\d{2,5})(?![\w:]|\.\w)", _A)
_HOST_BYTE = re.compile(r"[\w.-]", _A)
_LONGEST = 255
_SERVICES = frozenset(
    {1883, 2181, 2222, 2379, 2380, 3000, 3306, 4317, 4318, 5000, 5432, 5555, 5601, 5672, 6006, 6379}
    | {6380, 6443, 6817, 6818, 6819, 7077, 7860, 8000, 8001, 8002, 8080, 8081, 8265, 8443, 8500}
    | {8501, 8786, 8787, 8888, 9000, 9042, 9090, 9092, 9100, 9200, 9300, 9400, 10001, 10250, 11211}
    | {11434, 15672, 18080, 20049, 26379, 27017, 29400, 29500, 29501, 30000, 50051}
)
"""Ports of databases, queues, notebooks, servers of models, and where ranks meet."""
_FEW = frozenset({22, 80, 443})
_STRONG = re.compile(
    r"com|org|edu|gov|mil|lan|corp|localdomain|intranet|arpa|eu|de|uk|fr|ch|nl|be|se|fi|dk|cz|cn"
    r"|jp|kr|tw|au|ca|br|sg|hk|il|ru",
    _A,
)
"""Last parts of host names that neither modules nor files have."""
_WEAK = re.compile(
    r"local|internal|intra|home|cluster|svc|net|io|ai|dev|app|cloud|info|tech|it|at|us|es|no|in", _A
)
"""Last parts of host names that modules may have too."""
_WORDS = re.compile(
    r"(?:^|[-.])(?:node|host|login|compute|master|dgx|hgx|srv|server|vm|ip|db|redis|postgres|mysql"
    r"|mongo|etcd|ray|slurm|ssh|broker|registry|controller|rdzv|rendezvous)(?=\d|[-.]|$)",
    _A,
)
_COMPOUND = re.compile(r"[a-z]{2,40}(?:host|node|server|master|gpus?|dgx|hgx)", _A)
"""Names without digit or hyphen that say what they are: `gpuhost`, `trainnode`."""
_MIN_PORT = 10_000
"""Behind such a name: lines of files are seldom so many."""
_NO_HOST = re.compile(
    r"(?:layers?|blocks?|steps?|ranks?|stages?|batch|bs|seq|len|tokens?|heads?|experts?|cuda|hip|xpu"
    r"|cpu|stream|iter|epoch|micro|mb|chunk|bucket|shard|[tpdec]p|mlp|attn|conv|fc|run|exp|fp"
    r"|bf|int|sm|v|h|a|b|k|m|n|tok-s|loss|top)-?\d{0,4}",
    _A,
)
"""Names of parts and sizes, which are not hosts whatever number follows."""
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", _A)
_FULL = re.compile(
    r"\.(?<=[\w]\.)(?:local|internal|lan|corp|localdomain|intranet|edu|gov|mil|com|org|net)"
    r"(?![\w-]|\.\w|:\d)",
    _A,
)
_NOBODY = frozenset({"localhost", "localhost.localdomain", "0.0.0.0"})


def host_spans(text: str) -> Iterator[tuple[int, int]]:
    """Return where hosts with their ports, and full names of hosts, begin and end."""
    spans = []
    if ":" in text:
        for match in _PORT.finditer(text):
            start = _start_of_host(text, match.start())
            host, port = text[start : match.start()].lower(), int(match[1])
            if not _follows_a_name(text, start) and _is_host(host, port):
                spans.append((start, match.end()))
    if "." in text:
        for match in _FULL.finditer(text):
            start = _start_of_host(text, match.start())
            labels = text[start : match.end()].lower().split(".")
            if not _follows_a_name(text, start) and _is_full_name(labels):
                spans.append((start, match.end()))
    return iter(sorted(spans))


def _start_of_host(text: str, end: int) -> int:
    if text[end - 1] == "]":
        opening = text.rfind("[", max(end - 80, 0), end)
        return opening if opening >= 0 else end
    start, least = end, max(end - _LONGEST, 0)
    while start > least and _HOST_BYTE.match(text, start - 1):
        start -= 1
    while start < end and text[start] in ".-":
        start += 1
    return start


def _follows_a_name(text: str, start: int) -> bool:
    """Say whether what stands before makes it a part of something else: `a::b`, `c/d`, `e@f`."""
    return start > 0 and text[start - 1] in ":/\\@$%"


def _is_host(host: str, port: int) -> bool:
    if host in _NOBODY or host.startswith("127.") or not 0 < port < 1 << 16:
        return False
    if host.startswith("["):
        return bool(re.fullmatch(r"\[[0-9a-f:.]{2,45}(?:%[\w.-]{1,20})?\]", host, _A)) and (
            host.count(":") >= 2
        )
    labels = host.split(".")
    if len(labels) == 4 and all(p.isdigit() and int(p) < 256 for p in labels):
        return True
    if not all(_LABEL.fullmatch(label) for label in labels) or not labels[0][0].isalpha():
        return False
    is_service = port in _SERVICES
    if len(labels) > 1:
        if _STRONG.fullmatch(labels[-1]):
            return True
        return bool(_WEAK.fullmatch(labels[-1])) and (is_service or "-" in host)
    is_numbered = "-" in host or any(map(str.isdigit, host))
    if _NO_HOST.fullmatch(host):
        return False
    if _WORDS.search(host):
        is_size = port < 1024 or port & (port - 1) == 0
        return is_service or (is_numbered and (port in _FEW or not is_size))
    if _COMPOUND.fullmatch(host) and port >= _MIN_PORT:
        return port & (port - 1) != 0
    return is_service and is_numbered


def _is_full_name(labels: list[str]) -> bool:
    """Say whether a name is a host's: by its first part, which seldom is a module's."""
    first = labels[0]
    is_numbered = "-" in first or (first[-1:].isdigit() and bool(_WORDS.search(first)))
    return (
        all(_LABEL.fullmatch(label) for label in labels)
        and first[0].isalpha()
        and is_numbered
        and (len(labels) > 2 or labels[-1] not in ("com", "org", "net"))
    )
