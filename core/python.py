"""Command lines that start a module as its own process."""

import os
import re
import sys
from collections.abc import Mapping

from core.config import ROOT


def module_command(module: str, *words: str, python: str = sys.executable) -> list[str]:
    """Return `python -P -m MODULE WORDS...`; rooms are found by `with_rooms`.

    Without `-P` Python looks in the current folder first: a command run in a folder of
    somebody else would run that folder's `json.py`.
    """
    return [python, "-P", "-m", module, *words]


def with_rooms(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the folder of our rooms in front of PYTHONPATH."""
    theirs = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    return {**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), *theirs])}


_OWN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|TMP|TEMP|HOSTNAME"
    r"|VIRTUAL_ENV|LD_LIBRARY_PATH|XDG_[A-Z_]+|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE"
    r"|(?:HTTP|HTTPS|NO|ALL)_PROXY|(?:http|https|no|all)_proxy|WARPBOARD_\w+"
    r"|PYTHON(?:DONTWRITEBYTECODE|PYCACHEPREFIX|UTF8|FAULTHANDLER)|STREAMLIT_SERVER_BASE_URL_PATH",
    re.ASCII,
)


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what pages, API and ingest see of a shell's variables.

    Others change what libraries do (STREAMLIT_SERVER_TRUSTED_USER_HEADERS, AUTHLIB_*), have
    something else loaded (LD_PRELOAD, PYTHONWARNINGS) or lift a limit (PYTHONINTMAXSTRDIGITS).
    """
    return {name: value for name, value in environment.items() if _OWN.fullmatch(name)}
