"""Which rank each capture of a run is, and whether the captures can be of one run.

A rank is known from the capture itself, from a manifest or from the file's name; else ranks are
numbered as their GPUs or files stand, with a warning.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.tables import CaptureWarning
from analysis.trace.model import Int64s


def _numbers_after(*words: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(rf"(?i)(?<![a-z])(?:{w})[ _\-=]?(\d{{1,5}})(?!\d)") for w in words)


_RANK_IN_NAME = _numbers_after("rank", "worker|gpu", "tp")
"""What names call a rank, the clearest first: servers name files by tensor-parallel rank."""
_ONLY_RANK_IN_NAME = _numbers_after("rank", "worker")
"""Those that never say how many ranks there were."""


MAX_JOB_RANKS = 1 << 17
"""No job is larger: a number beyond it is damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """One capture's ranks, as its file was read."""

    file_name: str
    ranks: pd.DataFrame
    "RANK_COLUMNS of `trace.ranks`."
    collectives: pd.DataFrame
    "COLLECTIVE_COLUMNS."
    rank: int | None = None
    "Of the whole file, as a manifest says."


def rank_in_name(file_name: str, *, sizes_too: bool = True) -> int | None:
    """Return the rank that a file's name says (`rank0`, `worker2`, `TP-3`); None if none.

    Without `sizes_too` words that may as well count the ranks (`gpu4`, `tp8`) say nothing.
    """
    patterns = _RANK_IN_NAME if sizes_too else _ONLY_RANK_IN_NAME
    numbers = next((names for p in patterns if (names := p.findall(file_name))), None)
    return int(numbers[-1]) if numbers else None


def number_ranks(
    ranks: pd.DataFrame, parts: Sequence[RankPart]
) -> tuple[Int64s, list[CaptureWarning]]:
    """Return the rank of each row: from the capture, a manifest, a file's name, else its place."""
    alone = ranks.groupby("part")["device"].transform("size").to_numpy() == 1
    of_part = [_rank_of_file(part, is_only=len(parts) == 1) for part in parts]
    named = [of_part[i] for i in ranks["part"].tolist()]
    given = [None if pd.isna(r) else int(r) for r in ranks["rank"].tolist()]
    in_names = [
        own if own is not None else (name if is_alone else None)
        for own, name, is_alone in zip(given, named, alone.tolist(), strict=True)
    ]
    known = [r for r in in_names if r is not None]
    if len(known) == len(in_names) and len(set(known)) == len(known):
        return np.array(in_names, np.int64), []
    warnings = []
    by_gpu = _by_gpu(ranks) if not known else None
    if by_gpu is not None:
        message = f"no capture says its rank: the {len(ranks)} ranks are numbered as their GPUs are"
        return by_gpu, [CaptureWarning(code="ranks_assumed", message=message)]
    if len(ranks) > 1:
        twice = sorted({r for r in known if known.count(r) > 1})
        why = f"rank {twice[0]} is met twice" if twice else "not every capture says its rank"
        message = f"{why}: the {len(ranks)} ranks are numbered in the order of files and GPUs"
        warnings.append(CaptureWarning(code="ranks_assumed", message=message))
    return np.arange(len(ranks), dtype=np.int64), warnings


def _rank_of_file(part: RankPart, *, is_only: bool) -> int | None:
    """Return the rank that a manifest or the file's name says; None if neither.

    One file that calls nobody is no rank because its name counts GPUs: `gpu4.sqlite`, `tp8.json`.
    """
    if part.rank is not None:
        return part.rank
    calls_others = not is_only or len(part.collectives) > 0
    return rank_in_name(part.file_name, sizes_too=calls_others)


def _by_gpu(ranks: pd.DataFrame) -> Int64s | None:
    """Return the GPUs of captures that each hold another one, from 0 on; None for others."""
    device = ranks["device"].to_numpy(np.int64)
    if ranks["part"].nunique() < 2 or sorted(device.tolist()) != list(range(len(device))):
        return None
    return device


def missing_ranks(ranks: pd.DataFrame) -> tuple[tuple[int, ...], list[CaptureWarning]]:
    """Return the ranks of the job that no capture holds."""
    known = set(ranks["rank"].tolist())
    sizes = [int(s) for s in pd.concat([ranks["world_size"], ranks["largest_group"]]).dropna()]
    size = max([s for s in (*sizes, max(known) + 1) if s <= MAX_JOB_RANKS], default=0)
    if len(ranks) == 1 and size == 1:
        return (), []
    missing = tuple(r for r in range(size) if r not in known)
    if not missing:
        return (), []
    shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
    subject = f"rank {shown} of {size} is" if len(missing) == 1 else f"ranks {shown} of {size} are"
    message = f"{subject} not here: waiting for the slowest rank is a lower bound"
    return missing, [CaptureWarning(code="ranks_missing", message=message)]


def several_jobs(ranks: pd.DataFrame) -> list[CaptureWarning]:
    """Warn that the captures are not of one job and time; [] if they may be.

    One rank that two captures claim to hold, or jobs of different sizes.
    """
    if len(ranks) == 1:
        return []
    sizes = ranks.dropna(subset=["world_size"]).drop_duplicates("world_size")
    claims = ranks.drop_duplicates(["part", "stated_rank"]).dropna(subset=["stated_rank"])
    twice = claims[claims.duplicated("stated_rank", keep=False)].sort_values("stated_rank")
    if len(twice):
        rank = int(twice["stated_rank"].iloc[0])
        names = twice[twice["stated_rank"] == rank]["file_name"].tolist()
        clash = f"{names[0]} and {names[1]} both hold rank {rank}"
    elif len(sizes) > 1:
        first, second = sizes.to_dict("records")[:2]
        clash = (
            f"{first['file_name']} is of a job of {first['world_size']} ranks and "
            f"{second['file_name']} of one of {second['world_size']}"
        )
    else:
        return []
    message = (
        f"{clash}: these are several jobs, or several recordings of one. No number that needs two "
        "ranks is given; import the files of each as a run of its own"
    )
    return [CaptureWarning(code="several_jobs", message=message)]
