"""The small pictures of studies, kept in a file: the gallery is whole when a server has started."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LOOK = "2"
"""How pictures are drawn; another value makes all of them anew."""
Finished = tuple[str, int, str]
"""How pictures are drawn, how many finished runs there are, when the newest of them finished."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thumbnail:
    """What the gallery shows of a study besides its words."""

    svg: str
    "Empty where no run feeds it."
    num_runs: int


def read_pictures(path: Path) -> dict[str, tuple[Finished, Thumbnail]]:
    """Return what was kept; nothing without a file that this version wrote."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): (
                (str(of[0]), int(of[1]), str(of[2])),
                Thumbnail(svg=str(svg), num_runs=int(num_runs)),
            )
            for name, of, svg, num_runs in rows
        }
    except (OSError, ValueError, TypeError, IndexError, KeyError):
        return {}


def write_pictures(path: Path, pictures: Mapping[str, tuple[Finished, Thumbnail]]) -> None:
    """Keep the pictures; where that is not possible they are made again after the next start."""
    rows = [[name, of, made.svg, made.num_runs] for name, (of, made) in pictures.items()]
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(rows), encoding="utf-8")
        part.replace(path)
    except OSError as exc:
        _log.warning("pictures of studies are not kept: %s", exc)
