"""The installation's secret, by which GPUs are known again without their UUIDs.

32 random bytes in the data directory, made when first needed, the owner's alone. Files that leave
the installation hold hashes by it, which tell nobody else that two files are of one GPU.
"""

import os
import secrets
from pathlib import Path

SALT = "gpu.salt"
_NUM_BYTES = 32


def device_salt(folder: Path) -> bytes:
    """Return the secret in a folder, made if it is not there; b"" where it cannot be kept."""
    path = folder / SALT
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(path)
        salt = path.read_bytes()
    except OSError:
        return b""
    return salt if len(salt) == _NUM_BYTES else b""


def _make(path: Path) -> None:
    """Write the secret whole or not at all: another process may do the same now."""
    if path.exists():
        return
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_NUM_BYTES))
        try:
            os.link(part, path)
        except FileExistsError:
            return
    finally:
        part.unlink(missing_ok=True)
