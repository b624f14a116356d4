"""Networks that can be cut: a private pair of network namespaces, and a TCP proxy.

Everything is in the campaign's own network namespace; the host's network is not touched.
"""

import contextlib
import ctypes
import select
import socket
import subprocess
import threading
import time

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
NEAR, FAR = "10.77.0.1", "10.77.0.2"


def enter_private_network() -> bool:
    """Move this process into network and mount namespaces of its own; False where not permitted.

    Must be called before any thread is started.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        return False
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return True


def die_with_us(*command: str) -> list[str]:
    """Return a command that ends when this process does, killed or not."""
    return ["setpriv", "--pdeathsig", "TERM", "--", *command]


class FarHost:
    """A second network namespace, joined to this one by a virtual cable."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(die_with_us("unshare", "-n", "sleep", "infinity"))
        time.sleep(1.0)
        pid = str(self._holder.pid)
        self.prefix = ("nsenter", "-t", pid, "-n")
        self._ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", pid)
        self._ip("addr", "add", f"{NEAR}/24", "dev", "near")
        self._ip("link", "set", "near", "up")
        for words in (("addr", "add", f"{FAR}/24", "dev", "far"), ("link", "set", "far", "up")):
            subprocess.run([*self.prefix, "ip", *words], check=True)
        subprocess.run([*self.prefix, "ip", "link", "set", "lo", "up"], check=True)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def cut(self) -> None:
        """Pull the cable: packets are lost without an answer."""
        self._ip("link", "set", "near", "down")

    def join(self) -> None:
        """Put the cable back."""
        self._ip("link", "set", "near", "up")

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


class Proxy:
    """Forwards TCP to one port, slowly, and can refuse or swallow everything for a while."""

    def __init__(self, target_port: int, bytes_per_s: int) -> None:
        self.mode = "pass"
        self._target_port = target_port
        self._bytes_per_s = bytes_per_s
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Close every connection in the middle of whatever it carries."""
        for pair in list(self._pairs):
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            if self.mode == "refuse":
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
            except OSError:
                near.close()
                continue
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        pair = (near, far)
        self._pairs.add(pair)
        try:
            while self._carry_once(near, far):
                pass
        except OSError:
            pass
        finally:
            self._pairs.discard(pair)
            near.close()
            far.close()

    def _carry_once(self, near: socket.socket, far: socket.socket) -> bool:
        if self.mode == "swallow":
            time.sleep(0.1)
            return True
        readable, _, _ = select.select([near, far], [], [], 1.0)
        for source in readable:
            data = source.recv(65_536)
            if not data:
                return False
            (far if source is near else near).sendall(data)
            time.sleep(len(data) / self._bytes_per_s)
        return True
