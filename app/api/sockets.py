"""All listening sockets of this process."""

import os
import socket
import stat


def answer_at_once() -> int:
    """Turn Nagle's delay off for all connections to come; return how many sockets listen.

    An answer is two small writes, and the second would wait for the caller's delayed
    acknowledgement: 40 ms on Linux. asyncio turns it off for sockets that it opens itself, but not
    for one that Streamlit hands to the server. Accepted connections inherit the option.
    """
    return sum(_make_prompt(int(name)) for name in os.listdir("/proc/self/fd"))


def _make_prompt(fd: int) -> bool:
    """Set the option if this is a listening TCP socket; say whether it is one."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as sock:
            is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6)
            if not is_tcp or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return False
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return True
    except OSError:  # closed meanwhile
        return False
