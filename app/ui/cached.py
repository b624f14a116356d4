"""Reads of the database that pages share, kept until what they were made of changes.

Their key is when the database was written, or a token that changes with the runs and GPUs in it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from core.config import data_dir
from db import Database, changes
from db.connection import opened

P = ParamSpec("P")

T = TypeVar("T")

Stamp = tuple[str, int, int]


@contextmanager
def database() -> Iterator[Database]:
    """Open this server's database for one block."""
    with opened(data_dir().db_path) as db:
        yield db


def read(query: "Callable[Concatenate[Database, P], T]", *args: "P.args", **named: "P.kwargs") -> T:
    """Return what a query of `db` gives now, kept nowhere."""
    with database() as db:
        return query(db, *args, **named)


def stamp() -> Stamp:
    """Return a value that changes with every write to the database."""
    path = data_dir().db_path
    return (str(path), written_ns(path), written_ns(path.with_name(path.name + "-wal")))


def content_stamp() -> Stamp:
    """Return a value that changes with the runs and GPUs, and not with heartbeats and progress."""
    written = stamp()
    known = _contents.get(written[0])
    if known is None or known[0] != written:
        with database() as db:
            known = _contents[written[0]] = (written, changes.content(db))
    return (written[0], known[1], 0)


_contents: dict[str, tuple[Stamp, int]] = {}
"""By database: when it was written, and what stood in it then."""


def written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def until_written(
    cache: Any,
    *,
    ttl: int = 900,
    max_entries: int,
    show_spinner: str | bool = False,
    key: Callable[[], Stamp] = stamp,
) -> "Callable[[Callable[P, T]], Callable[P, T]]":
    """Keep what a read returns until something is written to the database.

    `cache`: `st.cache_data` copies the answer for each reader, `st.cache_resource` shares it.
    """

    def decorate(read: "Callable[P, T]") -> "Callable[P, T]":
        def kept(key: Stamp, *args: "P.args", **named: "P.kwargs") -> T:
            return read(*args, **named)

        # Streamlit keys cached functions by these.
        kept.__module__, kept.__qualname__ = read.__module__, read.__qualname__
        cached = cache(ttl=ttl, max_entries=max_entries, show_spinner=show_spinner)(kept)

        @wraps(read)
        def fresh(*args: "P.args", **named: "P.kwargs") -> T:
            answer: T = cached(key(), *args, **named)
            return answer

        return fresh

    return decorate


until_changed = partial(until_written, key=content_stamp)
"""Keep what a read returns until runs or GPUs change: a worker's heartbeats leave it."""
