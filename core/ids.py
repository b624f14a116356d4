"""Short ids that sort by creation time."""

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32, lower case


def new_id(prefix: str = "r") -> str:
    """Return e.g. `r1m3x9k2q7tz4ab`: prefix, 7 digits of seconds since 1970, 8 random digits.

    Random enough for the ten thousand runs that a script may make in one second.
    """
    seconds = int(time.time())
    head = ""
    for _ in range(7):
        seconds, digit = divmod(seconds, 32)
        head = _ALPHABET[digit] + head
    return prefix + head + "".join(secrets.choice(_ALPHABET) for _ in range(8))
