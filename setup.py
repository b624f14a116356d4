"""Put the rooms of the clone below the package `warpboard`: code, pages, static and demo data.

Everything else stands in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
ROOMS = ("analysis", "app", "captures", "core", "db", "worker", "workloads")
FILES = (".streamlit/config.toml", "warpboard_marks.h", "LICENSE")
LOCKS = "requirements"


class BuildRooms(build_py):
    """Build the command's package, then copy the rooms into it."""

    def run(self) -> None:
        super().run()
        target = Path(self.build_lib) / "warpboard" / "_rooms"
        shutil.rmtree(target, ignore_errors=True)
        leave_out = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
        for name in (*ROOMS, LOCKS):
            shutil.copytree(ROOT / name, target / name, ignore=leave_out)
        for name in FILES:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


setup(cmdclass={"build_py": BuildRooms})
