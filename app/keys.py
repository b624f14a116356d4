"""Make the secrets that containers share: Redis's configuration with its password, its URL.

`python -m app.keys FOLDER [WRITABLE...]` runs before the other containers; a password stays.
"""

import os
import secrets
import sys
from pathlib import Path

from app.serve.publish import check_for_workers
from core.console import fail
from core.errors import AppError, UserError

CONFIGURATION = "redis.conf"
PASSWORD = "redis.password"
URL = "broker.url"
_REDIS = """bind * -::*
protected-mode yes
requirepass {password}
appendonly yes
appendfsync everysec
dir /data
maxmemory 256mb
maxmemory-policy noeviction
"""


def make_keys(folder: Path) -> None:
    """Write the password, the configuration with it and the URL, each readable by its owner."""
    path = folder / PASSWORD
    password = path.read_text().strip() if path.exists() else secrets.token_hex(32)
    for name, text in (
        (PASSWORD, f"{password}\n"),
        (CONFIGURATION, _REDIS.format(password=password)),
        (URL, f"redis://:{password}@redis:6379/0\n"),
    ):
        partial = folder / f"{name}.new"
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        partial.replace(folder / name)


def check_writable(folders: list[Path]) -> None:
    """Raise UserError for a volume of an earlier version, which root or Redis's own user has."""
    for folder in folders:
        if not os.access(folder, os.W_OK):
            raise UserError(
                f"the volume at {folder} belongs to another user: give it to uid {os.getuid()}"
                " once, or remove it (docs/troubleshooting.md)"
            )


def main(argv: list[str]) -> int:
    folder, *writable = map(Path, argv)
    try:
        check_for_workers()  # Redis waits for this command: its port stays shut
        check_writable([folder, *writable])
        make_keys(folder)
    except AppError as error:
        return fail(str(error), error.exit_code, is_json=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
