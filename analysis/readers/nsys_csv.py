"""Read the CSV reports of `nsys stats`: kernel, API, memory and range summaries, old and new names.

`nsys stats` ends with code 0 whatever happens, so an empty file or one that only says SKIPPED is
"no data", not a measurement of nothing. Text tables are refused: they cut names short, and kernels
of one cut name cannot be told apart.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from analysis.readers.nsys_csv_checks import check_summaries
from analysis.readers.nsys_csv_frames import (
    api_frame,
    kernel_frame,
    phase_frame,
    transfer_frame,
)
from analysis.readers.nsys_csv_rows import SummaryRow, summaries
from analysis.tables import CaptureKind, CaptureTables, CaptureWarning
from captures.opening import read_text, reading
from core.errors import CaptureError

_ELLIPSIS = re.compile(r"\.\.\.$|\u2026")
_OTHER_API = "other API"
"""Calls of the operating system, OpenGL and the like: the same columns as CUDA's."""
_TEXT_RULE = re.compile(r"^\s*-{4,}(\s+-{4,}){3,}\s*$")


def read_nsys_csv(path: Path) -> CaptureTables:
    """Return what the summaries in the file hold; CaptureError if it is none of them."""
    with reading(path):
        text = read_text(path)
    if text.startswith("version https://git-lfs"):
        raise CaptureError(
            path, "the file is a Git LFS pointer, not the report itself", "Run `git lfs pull`"
        )
    lines = text.splitlines()
    warnings = list(_notices(lines))
    blocks, repeated = _first_of_each(summaries(path, lines))
    if repeated:
        text = f"several different {', '.join(repeated)} summaries: only the first is used"
        warnings.append(_warn("several_summaries", text))
    if not blocks:
        _refuse_other_content(path, lines)
        warnings.append(_warn("no_data", _no_data_message(lines)))
    bare = [kind for kind, rows in blocks.items() if not rows]
    if bare:
        text = f"the {', '.join(bare)} summary has a header and no row: cut off, or no data"
        warnings.append(_warn("no_data", text))
    warnings.extend(check_summaries(blocks))
    names = [row.name for rows in blocks.values() for row in rows]
    cut = sum(1 for name in names if _ELLIPSIS.search(name))
    if cut:
        warnings.append(
            _warn("truncated_names", f"{cut} names are cut short: equal ones may be different")
        )
    return _tables(path, blocks, warnings)


def _first_of_each(
    found: Iterable[tuple[str, list[SummaryRow]]],
) -> tuple[dict[str, list[SummaryRow]], list[str]]:
    """Return one summary of each kind, and the kinds of which the file holds different ones."""
    blocks: dict[str, list[SummaryRow]] = {}
    repeated: list[str] = []
    for kind, rows in found:
        if kind == "api" and rows and not any(r.name.startswith("cu") for r in rows):
            kind = _OTHER_API
        if not blocks.get(kind):
            blocks[kind] = rows
        elif rows and rows != blocks[kind] and kind not in (_OTHER_API, *repeated):
            repeated.append(kind)
    return blocks, repeated


def _tables(
    path: Path, blocks: dict[str, list[SummaryRow]], warnings: list[CaptureWarning]
) -> CaptureTables:
    kernels = blocks.get("kernel")
    summary = {}
    if kernels:
        summary["num_kernels"] = sum(r.count for r in kernels)
        summary["kernel_time_ns"] = sum(r.total_ns or 0 for r in kernels)
    if _OTHER_API in blocks and "api" not in blocks:
        warnings.append(_warn("other_api", "the API summary is not of CUDA: it is left out"))
    if "api" in blocks:
        warnings.append(_warn("failed_calls_unknown", "an API summary does not say what failed"))
    if "range" in blocks:
        warnings.append(
            _warn("flat_ranges", "a range summary has no nesting: each name is a path of its own")
        )
    if blocks.get("memory_size") and blocks.get("memory_time"):
        warnings.append(_warn("rounded_bytes", "sizes are rounded by the report"))
    elif blocks.get("memory_size"):
        text = "a size summary alone is left out: add that of times (cuda_gpu_mem_time_sum)"
        warnings.append(_warn("sizes_without_times", text))
    return CaptureTables(
        kind=CaptureKind.NSYS_CSV,
        path=path,
        tool="nsys",
        summary=summary,
        kernels=kernel_frame(kernels) if kernels else None,
        api_calls=api_frame(blocks["api"]) if blocks.get("api") else None,
        transfers=transfer_frame(blocks) if blocks.get("memory_time") else None,
        phases=phase_frame(blocks["range"]) if blocks.get("range") else None,
        warnings=tuple(warnings),
    )


def _warn(code: str, message: str) -> CaptureWarning:
    return CaptureWarning(code=code, message=message)


def _notices(lines: Sequence[str]) -> Iterator[CaptureWarning]:
    for line in lines:
        if "Existing SQLite export found" in line:
            yield _warn(
                "stale_export",
                "the report was made from an SQLite export that lay there already: it may be older "
                "than the capture (use --force-export=true)",
            )
        if line.lstrip().startswith("SKIPPED"):
            yield _warn("nsys_diagnostic", f"Nsight Systems: {_only_name(line.strip())[:300]}")


def _only_name(text: str) -> str:
    return re.sub(r"(?:/[\w.+@~-]+)+/", "", text)


def _no_data_message(lines: Sequence[str]) -> str:
    what = "SKIPPED reports" if any("SKIPPED" in line for line in lines) else "nothing"
    return f"the report holds {what}: no data was recorded, or nsys stats failed without saying so"


def _refuse_other_content(path: Path, lines: Sequence[str]) -> None:
    for number, line in enumerate(lines, 1):
        if _TEXT_RULE.match(line):
            raise CaptureError(
                path,
                f"line {number}: this is a text table of nsys stats, which cuts names short",
                "Run `nsys stats --format csv`, or import the .sqlite",
            )
    known = ("SKIPPED", "NOTICE", "Processing", "Generating", "**", "WARNING", "ERROR")
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(known):
            raise CaptureError(
                path,
                f"line {number} is no header of a kernel, API, memory or range summary",
                "Give the CSV of `nsys stats -r cuda_gpu_kern_sum,cuda_api_sum,nvtx_sum`",
            )
