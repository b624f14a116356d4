"""Serve the operator's own copy of the Perfetto UI beside the pages, so that traces open offline.

WARPBOARD_PERFETTO_UI names a folder with an unpacked build of it (`index.html` on top). Without it
nothing is served. The page gets the trace by Perfetto's own messages: see `app/ui/perfetto.js`.
"""

import os
from pathlib import Path

from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from core.config import expanded

VARIABLE = "WARPBOARD_PERFETTO_UI"
PREFIX = "/perfetto"
_POLICY = (
    "default-src 'self' blob: data:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self' blob: data:; object-src 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
"""Perfetto (v52) asks Google whether the user is an internal one, and looks for a trace processor
on port 9001: neither leaves the browser."""


def ui_folder() -> Path | None:
    """Return the folder of the Perfetto UI; None where the operator names none, or a wrong one."""
    named = os.environ.get(VARIABLE, "").strip()
    folder = expanded(named).resolve() if named else None
    return folder if folder and (folder / "index.html").is_file() else None


def why_not() -> str:
    """Return in one sentence why there is no Perfetto UI here; empty when there is one."""
    named = os.environ.get(VARIABLE, "").strip()
    if ui_folder():
        return ""
    if named:
        return f"{VARIABLE} names {named}, which holds no index.html of a Perfetto UI."
    return f"To open it here by one press, without the network, set {VARIABLE}: docs/perfetto.md."


def routes() -> list[BaseRoute]:
    """Return the route that serves the UI, none where there is none."""
    folder = ui_folder()
    return [Mount(PREFIX, _Files(directory=folder, html=True))] if folder else []


class _Files(StaticFiles):
    """Files of one folder alone, with a policy that lets a page reach only this server."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = _POLICY
        return response
