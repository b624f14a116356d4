"""Look up names in StringIds: only those asked for, bounded in length."""

from collections.abc import Iterable

from captures.nsys_database import NsysDatabase

MAX_NAME_CHARS = 32_768
"""Longer than any mangled C++ name seen (9 000 characters)."""


def load_names(database: NsysDatabase, ids: Iterable[int]) -> dict[int, str]:
    """Return the text of each id that StringIds holds; ids that it lacks are absent."""
    wanted = {i for i in ids if i >= 0}
    if not wanted or not database.has("StringIds", "id", "value"):
        return {}
    sql = f"SELECT id, substr(value, 1, {MAX_NAME_CHARS}) FROM StringIds"
    names: dict[int, str] = {}
    for key, value in database.conn.execute(sql):
        if key in wanted and key not in names and value is not None:
            names[key] = as_text(value)
    return names


def as_text(value: object) -> str:
    """Return any SQLite value as text; bytes that are not UTF-8 keep a replacement mark."""
    if isinstance(value, bytes):
        return value[:MAX_NAME_CHARS].decode("utf-8", "replace")
    return str(value)[:MAX_NAME_CHARS]
