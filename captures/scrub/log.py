"""Clean lines of a job's log, keeping system folders and the product's, which help the reader."""

import contextlib
import getpass
import os
import socket
from pathlib import Path

from captures.identity import device_salt
from captures.private import PrivateWords, clean
from core.config import ROOT, host_folder


def host_words() -> PrivateWords:
    """Return the identifying names of this host and user, and the host's salt."""
    names = [socket.gethostname(), socket.getfqdn(), os.environ.get("USER", "")]
    with contextlib.suppress(KeyError, OSError):  # a container's user may have no name
        names.append(getpass.getuser())
    return PrivateWords(names, salt=device_salt(host_folder()))


class LogCleaner:
    """Cleans texts of this host: the product's own and the home folder's prefix go first."""

    def __init__(self, words: PrivateWords | None = None) -> None:
        self._words = host_words() if words is None else words
        home = str(Path.home())
        self._prefixes = [(f"{ROOT}/", "")] + ([(f"{home}/", "~/")] if len(home) > 1 else [])

    def text(self, text: str) -> str:
        """Return the text without personal folders, secrets and names."""
        for prefix, short in self._prefixes:
            text = text.replace(prefix, short)
        return clean(text, self._words, keeps_system_paths=True)
