"""Guess from their names which files were made of one execution, and say why."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ENDINGS: tuple[tuple[str, str], ...] = (
    (r"(\.nsys-rep|\.qdrep|\.sqlite)$", "timeline"),
    (r"\.ncu-rep$", "counter report"),
    (r"(\.pickle|\.pkl)(\.gz)?$", "memory snapshot"),
    (r"\.json(\.gz)?$", "trace"),
    (r"\.(csv|tsv|txt|log)(\.gz)?$", "table"),
)
"""What a file seems to be, by the end of its name; only reading it tells."""
_TOOL_WORDS = re.compile(
    r"(?<![a-z0-9])(nsys|ncu|memory|mem|snapshot|trace|pt|details|raw|source|counters|latency"
    r"|timeline|profile|report)(?![a-z0-9])"
)
_RANK = re.compile(r"(?<![a-z0-9])(rank|node|gpu|worker)[-_]?\d+(?![0-9])")
_PARALLEL_RANK = re.compile(r"(?<![a-z0-9])(tp|pp|dp|ep|dcp)[-_]?(\d+)(?![0-9])")
"""How servers name files by rank; a rank only where one is 0: `tp2` and `tp4` are settings."""
_STAMP = re.compile(r"\.\d+(?=\.pt\.trace)")
"""When PyTorch wrote a trace: each rank at another millisecond."""
_SEPARATORS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A guess of the runs that files make."""

    is_one: bool
    reason: str
    "Half a sentence, to follow `because`."
    groups: tuple[tuple[int, ...], ...]
    "The files of each run, by their place, if they are several runs."


def guess_runs(names: Sequence[str]) -> Grouping:
    """Return whether files of these names are one run or several."""
    kinds = [_kind(name) for name in names]
    stems = [_stem(name) for name in _of_one_job(names)]
    by_stem: dict[str, list[int]] = {}
    for place, stem in enumerate(stems):
        by_stem.setdefault(stem, []).append(place)
    groups = tuple(map(tuple, by_stem.values()))
    if len(groups) == 1:
        reason = "their names differ only in the type of file"
        if any(_ranks_in(name) for name in names):
            reason = "their names differ only in the rank"
        alone = tuple((place,) for place in range(len(names)))
        return Grouping(is_one=True, reason=reason, groups=alone)
    for place, kind in enumerate(kinds):
        first = kinds.index(kind)
        if stems[first] != stems[place]:
            reason = f"{names[first]} and {names[place]} are each a {kind}, under different names"
            return Grouping(is_one=False, reason=reason, groups=groups)
    reason = "each is a different type of file, as the tools write for one program"
    return Grouping(is_one=True, reason=reason, groups=groups)


def _of_one_job(names: Sequence[str]) -> list[str]:
    """Return the names without parallel ranks, and without times where each is another rank."""
    lowered = [name.lower() for name in names]
    ranks = [_ranks_in(name) for name in lowered]
    if all(ranks) and len(set(ranks)) == len(ranks):
        lowered = [_STAMP.sub("", name) for name in lowered]
    if any(number == "0" for name in lowered for _, number in _PARALLEL_RANK.findall(name)):
        lowered = [_PARALLEL_RANK.sub(" ", name.replace("_", "-")) for name in lowered]
    return lowered


def _ranks_in(name: str) -> tuple[str, ...]:
    text = name.lower().replace("_", "-")
    return tuple(m[0] for pattern in (_RANK, _PARALLEL_RANK) for m in pattern.finditer(text))


def _kind(name: str) -> str:
    endings = (kind for pattern, kind in _ENDINGS if re.search(pattern, name.lower()))
    return next(endings, "file of unknown type")


def _stem(name: str) -> str:
    """Return what a name says about the program: no ending, no tool, no rank."""
    text = name.lower()
    for pattern, _ in _ENDINGS:
        text = re.sub(pattern, "", text)
    text = _TOOL_WORDS.sub(" ", _RANK.sub(" ", text.replace("_", "-")))
    return _SEPARATORS.sub("-", text).strip("-")
