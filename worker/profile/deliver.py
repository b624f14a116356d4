"""Where a profiled run goes: it stays in a folder, is sent to a dashboard, or is imported here."""

import subprocess
import sys
from pathlib import Path

from core.config import ROOT
from core.console import note
from core.errors import RunFailedError, UserError


def refuse_early(out: Path | None, url: str | None, token_file: Path | None) -> None:
    """Raise UserError for a destination that cannot work, before anything is measured."""
    if url is None and token_file is not None:
        raise UserError("--token-file: is for --to URL")
    if url is not None:
        read_token(token_file)


def read_token(path: Path | None) -> str:
    """Return the token in a file; UserError that names what is wrong with it."""
    if path is None:
        raise UserError("--to: wants --token-file F, a file with the dashboard's token")
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise UserError(f"--token-file {path}: {error.strerror}") from error
    if not token or any(c.isspace() for c in token):
        raise UserError(f"--token-file {path}: does not hold one token")
    return token


def deliver(folder: Path, *, out: Path | None, url: str | None, token_file: Path | None) -> str:
    """Bring the bundle to where it was asked for; return where that is."""
    if out is not None:
        note(f"warpboard: look at it: warpboard import {out}")
        return str(out)
    if url is not None:
        raise UserError("--to: not yet")
    command = [str(ROOT / "warpboard"), "import", str(folder)]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise RunFailedError(f"import: ended with exit code {done.returncode}")
    return "imported"
