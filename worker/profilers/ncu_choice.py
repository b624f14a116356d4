"""Which kernels ncu is asked for, by the nsys capture of the same run, and what it covered.

A launch configuration is a kernel with one grid, block and amount of shared memory: its launches
are alike, so one of them is measured.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from captures.database import open_immutable
from core.errors import UserError

LIMIT_VARIABLE = "WARPBOARD_NCU_LAUNCHES"
DEFAULT_LAUNCHES = 60
"""A launch costs about a second, more where kernels write gigabytes."""
WANTED_SHARE_FRAC = 0.99
FULL_SHARE_FRAC = 0.9
"""Below this share of the GPU time the run says that its counters are partial."""

Dims = tuple[int, ...]
Launch = tuple[str, Dims, Dims]
"""Kernel name as ncu prints it, grid, block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A kernel and how it is launched, with the time it takes in the nsys capture."""

    kernel: str
    "The mangled name: what tells template instances apart."
    short_name: str
    grid: Dims
    block: Dims
    total_ns: int
    num_launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The kernels that ncu measures, one launch of each of their configurations."""

    kernels: tuple[str, ...]
    "Mangled names, the most time first."
    configurations: tuple[Configuration, ...]
    "Of these kernels."
    num_configurations: int
    "Of all kernels of the capture."
    num_launches: int
    total_ns: int

    @property
    def share_frac(self) -> float:
        return sum(c.total_ns for c in self.configurations) / self.total_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What a report holds of the nsys capture's GPU time and launches."""

    time_share_frac: float
    num_configurations: int
    num_launches: int
    "Launches in the nsys capture whose configuration was measured."
    tuned_otherwise: tuple[str, ...] = ()
    "Kernels that this process launched with another grid or block than the one under nsys."


def launch_limit() -> int:
    """Return how many launches a pass measures at most; UserError if the variable is wrong."""
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return DEFAULT_LAUNCHES
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UserError(f"{LIMIT_VARIABLE}: {text!r} is not a number of launches above 0")
    return int(text)


def choose_kernels(nsys_sqlite: Path, max_launches: int) -> Choice | None:
    """Return the kernels that cover most of the GPU time with so many launches; None without any.

    ncu selects by name, so a kernel comes with all its configurations or not at all: those with
    the most time for each configuration first.
    """
    by_kernel: dict[str, list[Configuration]] = defaultdict(list)
    for configuration in load_configurations(nsys_sqlite):
        by_kernel[configuration.kernel].append(configuration)
    everything = [c for group in by_kernel.values() for c in group]
    total_ns = sum(c.total_ns for c in everything)
    if not total_ns:
        return None
    chosen: list[list[Configuration]] = []
    left, covered_ns = max_launches, 0
    for group in sorted(by_kernel.values(), key=_ns_each, reverse=True):
        if len(group) <= left and covered_ns < WANTED_SHARE_FRAC * total_ns:
            chosen.append(group)
            left -= len(group)
            covered_ns += _ns(group)
    # One kernel with more configurations than the limit: ncu cannot take a part of them.
    chosen = sorted(chosen, key=_ns, reverse=True) or [min(by_kernel.values(), key=len)]
    return Choice(
        kernels=tuple(group[0].kernel for group in chosen),
        configurations=tuple(c for group in chosen for c in group),
        num_configurations=len(everything),
        num_launches=sum(c.num_launches for c in everything),
        total_ns=total_ns,
    )


def _ns(group: list[Configuration]) -> int:
    return sum(c.total_ns for c in group)


def _ns_each(group: list[Configuration]) -> float:
    return _ns(group) / len(group)


def load_configurations(nsys_sqlite: Path) -> list[Configuration]:
    """Return the launch configurations in an nsys export, [] where it holds no kernel."""
    db = open_immutable(nsys_sqlite)
    try:
        tables = {n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        if not {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= tables:
            return []
        columns = db.execute("SELECT name FROM pragma_table_info('CUPTI_ACTIVITY_KIND_KERNEL')")
        mangled = "mangledName" if ("mangledName",) in columns.fetchall() else "shortName"
        rows = db.execute(
            "SELECT coalesce(m.value, s.value), s.value, gridX, gridY, gridZ, blockX, blockY,"
            ' blockZ, SUM(k."end" - k.start), COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k'
            " JOIN StringIds s ON s.id = k.shortName"
            f" LEFT JOIN StringIds m ON m.id = k.{mangled} GROUP BY 1, gridX, gridY, gridZ, blockX,"
            " blockY, blockZ, staticSharedMemory + dynamicSharedMemory"
        ).fetchall()
    finally:
        db.close()
    return [
        Configuration(
            kernel=r[0],
            short_name=r[1],
            grid=r[2:5],
            block=r[5:8],
            total_ns=r[8],
            num_launches=r[9],
        )
        for r in rows
    ]


def kernel_id(kernels: Iterable[str]) -> str:
    """Return ncu's `--kernel-id`: the first launch of these kernels in each configuration."""
    names = "|".join(re.escape(name).replace(r"\-", "-") for name in kernels)
    return f"::regex:^({names})$:1"


def coverage(choice: Choice, launches: Iterable[Launch]) -> Coverage:
    """Return what the report's launches (kernel name, grid, block) cover: at least this much.

    ncu prints other names than nsys, the same for several template instances: where fewer launches
    than configurations are alike, the shortest ones count as measured.
    """
    alike: dict[tuple[Dims, Dims], list[Configuration]] = defaultdict(list)
    for c in choice.configurations:
        alike[c.grid, c.block].append(c)
    measured: dict[tuple[Dims, Dims, str], int] = defaultdict(int)
    otherwise: dict[str, None] = {}
    for name, grid, block in launches:
        if short := _own_name(name, alike.get((grid, block), ())):
            measured[grid, block, short] += 1
        elif short := _own_name(name, choice.configurations):
            otherwise[short] = None
    counted: list[Configuration] = []
    for (grid, block, short), count in measured.items():
        group = [c for c in alike[grid, block] if c.short_name == short]
        counted += sorted(group, key=lambda c: c.total_ns)[:count]
    return Coverage(
        time_share_frac=sum(c.total_ns for c in counted) / choice.total_ns,
        num_configurations=len(counted),
        num_launches=sum(c.num_launches for c in counted),
        tuned_otherwise=tuple(otherwise),
    )


def _own_name(name: str, configurations: Iterable[Configuration]) -> str:
    """Return the short name in a launch's name; the first, since template arguments name others."""
    at = {c.short_name: name.find(c.short_name) for c in configurations}
    places = [(place, -len(short), short) for short, place in at.items() if place >= 0]
    return min(places)[2] if places else ""


def time_shares(choice: Choice) -> Mapping[str, float]:
    """Return base name -> share of the GPU time of the chosen kernels, largest first."""
    shares: dict[str, float] = defaultdict(float)
    for c in choice.configurations:
        shares[c.short_name] += c.total_ns / choice.total_ns
    return dict(sorted(shares.items(), key=lambda item: item[1], reverse=True))
