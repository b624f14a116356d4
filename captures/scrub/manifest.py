"""Clean a bundle's manifest of what is private, by the same list as captures.

The job stays as it is, save the command line of a program of one's own: its params tell runs apart.
"""

from collections.abc import Mapping
from typing import Any

from captures.private import Cleaner, PrivateWords, private_field

_DROPPED = frozenset({"environment variables", "user", "host", "serial numbers", "secrets"})
_NAMING = frozenset({"user", "host", "secrets"})
_KEPT = frozenset({"job", "captures", "worker_id", "run_id"})
_COMMAND = ("argv", "cwd", "name")


def clean_manifest(manifest: Mapping[str, Any], words: PrivateWords) -> dict[str, Any]:
    """Return a checked manifest without what names people, hosts and folders."""
    cleaner = Cleaner(words)
    _learn(manifest, words)
    cleaned: dict[str, Any] = _cleaned(manifest, cleaner)
    job = dict(manifest["job"])
    params = dict(job.get("params") or {})
    for name in _COMMAND:
        if isinstance(params.get(name), str):
            params[name] = cleaner.text(params[name])
    return {**cleaned, "job": {**job, "params": params}}


def _learn(value: Any, words: PrivateWords) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        for key, inner in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(inner, (dict, list)):
                waiting.append(inner)
            elif isinstance(inner, str) and private_field(str(key)) in _NAMING:
                words.add(inner)


def _cleaned(value: Any, cleaner: Cleaner) -> Any:
    if isinstance(value, str):
        return cleaner.text(value)
    if isinstance(value, list):
        return [_cleaned(item, cleaner) for item in value]
    if not isinstance(value, dict):
        return value
    cleaned = {}
    for key, item in value.items():
        if key in ("uuid", "uuids") and item:
            cleaned[key] = _devices(item, cleaner.words)
        elif key in _KEPT:
            cleaned[key] = item
        elif not (isinstance(item, str) and private_field(key) in _DROPPED):
            cleaned[key] = _cleaned(item, cleaner)
    return cleaned


def _devices(uuids: Any, words: PrivateWords) -> Any:
    if isinstance(uuids, list):
        return [words.device(uuid) or None for uuid in uuids if isinstance(uuid, str)]
    return words.device(str(uuids)) or None
