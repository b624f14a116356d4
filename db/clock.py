"""The one way a time is written in the database."""

from datetime import UTC, datetime, timedelta


def utc_now() -> str:
    """Return the present as `2026-11-27T22:00:00.123Z`: text order is time order."""
    return _text(datetime.now(UTC))


def seconds_ago(seconds: float) -> str:
    """Return the time that many seconds ago, in the same form."""
    return _text(datetime.now(UTC) - timedelta(seconds=seconds))


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
