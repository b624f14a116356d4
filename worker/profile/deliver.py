"""Where a profiled run goes: it stays in a folder, is sent to a dashboard, or is imported here."""

import http.client
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core import VERSION
from core.config import ROOT, http_address, read_token_file
from core.console import note
from core.errors import RunFailedError, UserError
from core.python import module_command, with_rooms

_SCRIPT = ROOT / "warpboard"
"""Of a clone; it makes the environment that stores runs."""
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_ANSWER_BYTES = 16 << 20
CHUNK_BYTES = 1 << 20
TRIES = 5
TIMEOUT_S = 60.0


def refuse_early(out: Path | None, url: str | None, token_file: Path | None) -> None:
    """Raise UserError for a destination that cannot work, before anything is measured."""
    if url is None and token_file is not None:
        raise UserError("--token-file: needs --to URL")
    if url is not None:
        dashboard = _Dashboard(url, read_token(token_file))
        try:
            dashboard.refuse_stranger()
        finally:
            dashboard.close()


def place_of_run(out: Path | None, url: str | None) -> Path | None:
    """Return the folder that the run stays in; None where it is sent, or stored here.

    An installation without the dashboard's libraries has no place to store runs.
    """
    if out is not None or url is not None or _SCRIPT.is_file():
        return out
    if importlib.util.find_spec("sqlite_utils") is not None:
        return None
    folder = Path.cwd() / time.strftime("warpboard-run-%Y%m%d-%H%M%S")
    note(
        f"warpboard: the run will be in {folder.name}/, since this installation only profiles; "
        "`pip install 'warpboard[dashboard]'` stores and shows runs"
    )
    return folder


def read_token(path: Path | None) -> str:
    """Return the token in a file; UserError that names what is wrong with it."""
    if path is None:
        raise UserError("--to: needs --token-file F, a file with the dashboard's token")
    return read_token_file(path)


def deliver(folder: Path, *, out: Path | None, url: str | None, token_file: Path | None) -> str:
    """Bring the bundle to where it was asked for; return where that is."""
    if out is not None:
        note(f"warpboard: to view it: warpboard import {out}")
        return str(out)
    try:
        if url is not None:
            return _send_or_keep(folder, _Dashboard(url, read_token(token_file)))
        return _import_or_keep(folder)
    except KeyboardInterrupt:
        note(f"warpboard: the run is kept in {_keep(folder)}")
        raise


def _import_or_keep(folder: Path) -> str:
    """Store the bundle here and return its id; one that cannot be stored is kept."""
    done = subprocess.run(
        _import_command(folder), env=with_rooms(os.environ), stdout=subprocess.PIPE, check=False
    )
    try:
        answer = json.loads(done.stdout)
        run_id = str(answer["run_id"])
    except (ValueError, KeyError, TypeError) as error:
        kept = _keep(folder)
        raise RunFailedError(
            f"import: ended with exit code {done.returncode}. The run is kept in {kept}"
        ) from error
    for warning in answer.get("warnings", ()):
        note(f"warpboard: import: {warning['message']}")
    note(f"warpboard: stored as run {run_id}: warpboard show {run_id}")
    return run_id


def _send_or_keep(folder: Path, dashboard: "_Dashboard") -> str:
    """Send the bundle; one that cannot be sent is kept, and where is said."""
    try:
        run_id = dashboard.send(folder)
    except Exception as error:  # whatever the other side did: what was measured is not lost
        kept = _keep(folder)
        raise RunFailedError(f"--to: {error}. The run is kept in {kept}") from error
    finally:
        dashboard.close()
    note(f"warpboard: sent: {dashboard.url}/run?id={run_id}")
    return run_id


def _keep(folder: Path) -> Path:
    """Bring the bundle from its temporary place into the current folder, or beside that place."""
    try:
        kept = Path.cwd() / f"{folder.name}-kept"
        shutil.move(folder, kept)
    except OSError:  # the current folder is gone, or takes no files
        kept = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent)) / "run-kept"
        shutil.move(folder, kept)
    return kept


class _Dashboard:
    """The API of a dashboard elsewhere, with nothing but the standard library."""

    def __init__(self, url: str, token: str) -> None:
        parts, port = http_address("--to", url)
        self.url = url.rstrip("/")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connect: Callable[[], http.client.HTTPConnection] = lambda: kind(
            str(parts.hostname), port, timeout=TIMEOUT_S
        )
        self._base = f"{parts.path.rstrip('/')}/api/v1"
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": f"warpboard/{VERSION}"}
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def refuse_stranger(self) -> None:
        """Raise UserError where the dashboard cannot be reached, or does not know the token."""
        try:
            status, _, answer = self._ask("GET", "/runs?limit=1")
        except (OSError, http.client.HTTPException) as error:
            raise UserError(
                f"--to {self.url}: cannot be reached: {error}; with --out DIR the run stays here"
            ) from error
        if status in (401, 403):
            raise UserError(f"--to {self.url}: refused the token: {_message(answer)}")

    def send(self, folder: Path) -> str:
        """Bring a bundle over and return the id that its run has there."""
        manifest = json.loads((folder / "manifest.json").read_text())
        name = manifest["job"]["params"].get("name")
        run = self._json("POST", "/runs", {"job": manifest["job"], "name": name})
        run_id = run.get("run_id")
        if not (isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) and "attempt" in run):
            raise RunFailedError(f"{self.url}: its answer names no run: is it a Warpboard?")
        for entry in manifest["passes"]:
            for capture in entry["captures"]:
                self._upload(run_id, folder / capture["file"], capture["sha256"])
        self._json("POST", f"/runs/{quote(run_id)}/finish", manifest | {"attempt": run["attempt"]})
        return run_id

    def _upload(self, run_id: str, path: Path, sha256: str) -> None:
        """Bring one file over, going on where an earlier try broke off."""
        where = f"/runs/{quote(run_id)}/captures/{sha256}"
        for number in range(TRIES):
            try:
                status, headers, _ = self._ask("HEAD", where)
                if status == 200:
                    return
                offset = _offset(headers.get("Upload-Offset"), path.stat().st_size)
                query = f"?file={quote(path.name)}&offset={offset}"
                length = {"Content-Length": str(path.stat().st_size - offset)}
                status, _, body = self._ask("PUT", where + query, _chunks(path, offset), length)
                if status == 201:
                    return
                if status not in (200, 202, 409):
                    raise RunFailedError(f"the dashboard answered {status}: {_message(body)}")
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if number == TRIES - 1:
                    raise RunFailedError(f"{path.name}: {error}") from error
                time.sleep(0.5 * 2**number)
        raise RunFailedError(f"{path.name}: upload incomplete after {TRIES} tries")

    def _json(self, method: str, where: str, body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        kind = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        try:
            status, _, answer = self._ask(method, where, iter([data]), kind)
        except (OSError, http.client.HTTPException) as error:
            raise RunFailedError(f"{self.url}: {error}") from error
        if status >= 300:
            raise RunFailedError(f"the dashboard answered {status}: {_message(answer)}")
        try:
            document = json.loads(answer)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise RunFailedError(f"{self.url}: its answer is no JSON object: is it a Warpboard?")
        return document

    def _ask(
        self,
        method: str,
        where: str,
        body: Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._connection is None:
            self._connection = self._connect()
        sent = self._headers | dict(headers or {})
        self._connection.request(method, self._base + where, body=body, headers=sent)
        answer = self._connection.getresponse()
        body_back = answer.read(MAX_ANSWER_BYTES + 1)
        if len(body_back) > MAX_ANSWER_BYTES:
            self.close()
            raise RunFailedError(f"{self.url}: answers more than {MAX_ANSWER_BYTES >> 20} MiB")
        return answer.status, answer.headers, body_back  # type: ignore[return-value]


def _offset(given: str | None, size: int) -> int:
    """Return where an upload goes on; the start where the other side says no such place."""
    is_number = given is not None and given.isascii() and given.isdigit() and len(given) < 19
    return min(int(given), size) if is_number and given else 0


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body).get("error") or body[:200])[:500]
    except (ValueError, AttributeError, RecursionError):
        return body[:200].decode(errors="replace")


def _chunks(path: Path, offset: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _import_command(folder: Path) -> list[str]:
    """Return the command that imports a folder here: that of the clone, else the installed one."""
    words = ("import", "--json", str(folder))
    if _SCRIPT.is_file():
        return [str(_SCRIPT), *words]
    return module_command("app.cli", *words)
