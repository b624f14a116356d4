"""The HTML that a browser gets for each page: Streamlit's own, with the server's path filled in.

Streamlit's script takes the address of a page, `/submit`, for a folder and asks for
`/submit/_stcore/health` before `/_stcore/health`: two answers with 404 at every first view.
"""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from core.config import ROOT

_SERVER = """<script>
window.__streamlit = {BACKEND_BASE_URL: new URL("./", location.href).href}
</script>
"""
_TITLE = ("<title>Streamlit</title>", "<title>Warpboard</title>")
_FIRST_SCRIPT = "<script"


def page_names() -> list[str]:
    """Return the last part of each page's address; the first page's is also the root's."""
    return sorted(path.stem.rstrip("_") for path in (ROOT / "app/page").glob("*.py"))


def routes(base_path: str) -> list[BaseRoute]:
    """Return a route for the address of each page."""
    html = told_its_server((_static_folder() / "index.html").read_text(encoding="utf-8"))

    async def page(request: Request) -> Response:
        return HTMLResponse(html, headers={"Cache-Control": "no-cache"})

    return [Route(f"{base_path}/{name}", page, methods=["GET"]) for name in page_names()]


def told_its_server(html: str) -> str:
    """Return the page with its title, and with the server's address before the first script."""
    return html.replace(*_TITLE).replace(_FIRST_SCRIPT, _SERVER + _FIRST_SCRIPT, 1)


def _static_folder() -> Path:
    from streamlit import file_util

    return Path(file_util.get_static_dir())
