"""What pages need loaded, before the first of them is asked for.

Loading it takes a second, which the first reader would wait for. The server begins as soon as it
answers; a page that is asked for meanwhile waits for the rest instead of loading it a second time.
"""

import gc
import inspect
from threading import Lock

_lock = Lock()
_is_done = False


def load() -> None:
    """Import what pages use and draw a chart; returns at once where that is done already.

    Then what was loaded is put aside from the garbage collector, which would look through all of
    it in the middle of a page, 0.1 s each time.
    """
    global _is_done
    with _lock:
        if _is_done:
            return
        _import()
        gc.collect()
        gc.freeze()
        _is_done = True


def load_all() -> None:
    """Load what pages need, then, while they are served already, what some of them use."""
    load()
    from scipy import special  # noqa: F401 it takes as long as a page


def _import() -> None:
    import PIL.Image  # noqa: F401 streamlit loads it for the first icon
    import plotly.io
    import plotly.tools
    import pyarrow.dataset  # noqa: F401 pyarrow.parquet loads it with the first file

    import analysis.export  # noqa: F401
    from analysis.studies import list_studies
    from app import score  # noqa: F401
    from app.charts.base import figure
    from app.kept import code_digest
    from app.ui import (  # noqa: F401
        definitions_view,
        gpu_view,
        import_view,
        overview_view,
        queue_view,
        runs_table,
        study_view,
        trends_view,
    )
    from app.ui.compare import curves, detail, follow_up, several  # noqa: F401
    from app.ui.run import head, tabs  # noqa: F401
    from app.ui.submit import form, plan, values  # noqa: F401
    from workloads.registry import load_workloads

    list_studies()
    load_workloads()
    code_digest()
    inspect.stack()  # it looks for every module's file the first time, and streamlit asks for it
    fig = figure(height=100)
    fig.add("scatter", x=[0], y=[0])
    drawn = plotly.tools.return_figure_from_figure_or_data(fig.to_plotly(), validate_figure=True)
    plotly.io.to_json(drawn, validate=False)
