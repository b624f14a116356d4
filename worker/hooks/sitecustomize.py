"""Enters every Python that a profiled program starts; `warpboard profile` puts this folder first.

It runs the environment's own `sitecustomize` as Python would have, and waits for `import torch`.
Whatever goes wrong here is dropped: the program must run as it does without. Old Pythons read it
too, so its syntax is plain.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _watch():
    if sys.version_info < (3, 8) or not os.environ.get("WARPBOARD_PROFILE"):
        return
    try:
        import warpboard_hooks

        warpboard_hooks.enter(os.environ["WARPBOARD_PROFILE"])
    except Exception:
        if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
            raise


def _run_the_environments_own():
    import importlib.machinery
    import importlib.util

    others = [p for p in sys.path if os.path.abspath(p or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_watch()
_run_the_environments_own()
