"""The arrows between rooms of docs/architecture.md, read from the imports."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "captures", "workloads", "worker", "analysis", "db", "app", "bench")
MAY_IMPORT = {
    "core": set(),
    "captures": {"core"},
    "workloads": {"core"},
    "worker": {"core", "captures", "workloads"},
    "analysis": {"core", "captures"},
    "db": {"core", "captures", "analysis"},
    "app": {"core", "captures", "analysis", "db", "workloads", "worker"},
}
DB_MAY_IMPORT = ("analysis.tables", "analysis.runview", "analysis.rundata", "analysis.span_file")
APP_MAY_IMPORT_OF_WORKER = ("worker.celery_app",)
FORBIDDEN = {
    "core": {"pandas", "numpy", "torch", "celery", "httpx", "streamlit", "sqlite_utils"},
    "captures": {"pandas", "numpy", "torch", "celery", "httpx", "streamlit", "pyarrow"},
    "workloads": {"pandas", "celery", "httpx", "streamlit", "sqlite_utils", "pyarrow"},
    "worker": {"pandas", "numpy", "streamlit", "sqlite_utils", "pyarrow", "plotly"},
    "analysis": {"torch", "streamlit", "celery", "sqlite_utils", "plotly"},
    "db": {"torch", "streamlit", "celery", "plotly"},
    "app": {"torch", "triton", "sqlite_utils"},
}
_IMPORTED = re.compile(r"""(?:import |from |importorskip\(['"])(\w+)""")


def imported_names(path: Path) -> set[str]:
    """Return the dotted names of modules that a file imports, inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    names = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def files_that_import(room: str, is_wrong: Callable[[str], bool]) -> dict[str, set[str]]:
    """Return the files of a room with the wrong names that they import."""
    found = {
        str(path.relative_to(ROOT)): {n for n in imported_names(path) if is_wrong(n)}
        for path in sorted((ROOT / room).rglob("*.py"))
    }
    return {path: names for path, names in found.items() if names}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_follow_the_arrows(room: str) -> None:
    closed = set(ROOMS) - MAY_IMPORT[room] - {room} | FORBIDDEN[room]

    assert files_that_import(room, lambda name: name.split(".")[0] in closed) == {}


def test_collecting_the_tests_imports_nothing_that_takes_seconds() -> None:
    """Each process of a test session imports all test files."""
    heavy = {"torch", "triton", "scipy", "hypothesis", "playwright"}
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lines = [n for n in tree.body if not isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        text = "\n".join(map(ast.unparse, lines))
        if names := set(_IMPORTED.findall(text)) & heavy:
            found[path.name] = names
    assert found == {}


def test_db_takes_only_records_from_analysis() -> None:
    def is_wrong(name: str) -> bool:
        return name.startswith("analysis.") and not name.startswith(DB_MAY_IMPORT)

    assert files_that_import("db", is_wrong) == {}


def test_app_takes_only_the_queue_settings_from_worker() -> None:
    def is_wrong(name: str) -> bool:
        return name.startswith("worker.") and not name.startswith(APP_MAY_IMPORT_OF_WORKER)

    assert files_that_import("app", is_wrong) == {}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("workloads.registry", ("torch", "numpy", "pandas", "celery", "httpx")),
        ("worker.run_bundle", ("torch", "numpy", "pandas", "celery", "httpx")),
        ("worker.tasks", ("torch", "numpy", "pandas")),
        ("app.environments", ("numpy", "pandas", "celery", "sqlite_utils")),
        ("app.cli.main", ("numpy", "pandas", "celery", "streamlit")),
        ("app.submit", ("numpy", "pandas", "celery", "streamlit")),
        ("app.ingest_worker", ("numpy", "pandas", "streamlit")),
        ("app.api.app", ("numpy", "pandas", "celery", "streamlit")),
        ("analysis.compare.labels", ("analysis.compare.engine",)),
    ],
)
def test_a_module_starts_without_what_its_host_may_lack(
    module: str, absent: tuple[str, ...]
) -> None:
    code = (
        f"import importlib, sys; m = importlib.import_module({module!r});"
        "getattr(m, 'load_workloads', list)();"
        f"print(sorted(set({absent!r}) & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr
