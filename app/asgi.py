"""Pages and API as one application on one port: `streamlit run app/asgi.py`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app import perfetto  # noqa: E402
from app.api.app import Box, lifespan_for, routes  # noqa: E402
from app.ui import warm  # noqa: E402
from core.config import data_dir  # noqa: E402

box = Box()
# The path is absolute: a relative one would be looked up in the directory of the caller.
app = st.App(
    str(ROOT / "app" / "main.py"),
    routes=[*routes(box), *perfetto.routes()],
    lifespan=lifespan_for(data_dir(), box, load=warm.load),
)
