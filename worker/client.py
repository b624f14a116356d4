"""The dashboard's API as a worker speaks it: HTTP, bearer token, retries.

`DashboardAway` means try again later, `Refused` means that trying again will not help.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from core import VERSION
from core.errors import AppError

CHUNK_BYTES = 1 << 20
RETRY_DELAYS_S = (0.2, 0.5, 1.0, 2.0)
UPLOAD_ROUNDS = 8
KEEP_ALIVE_S = 2.0
"""Well below the 5 s after which the server closes an idle connection, perhaps just as we ask."""


class DashboardAway(AppError):
    """The dashboard does not answer, or is temporarily unable to."""


class Refused(AppError):
    """Report a request that the dashboard will not serve; `status` is the HTTP status."""

    def __init__(self, status: int, message: str, body: Mapping[str, Any] | None = None) -> None:
        self.status = status
        self.body = dict(body or {})
        super().__init__(f"dashboard answered {status}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that is ours to execute."""

    run_id: str
    "Not always the one asked for: the first in line for the same GPU model."
    spec: Mapping[str, Any]
    attempt: int


class DashboardClient:
    """One connection pool to one dashboard; usable from several threads."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 15.0) -> None:
        self._http = httpx.Client(
            base_url=url.rstrip("/") + "/api/v1",
            headers={"Authorization": f"Bearer {token}", "User-Agent": f"warpboard/{VERSION}"},
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
        )

    def close(self) -> None:
        self._http.close()

    def register(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Announce this worker; returns `{"heartbeat_s", "version"}`."""
        return self._post("/workers", record)

    def heartbeat(self, worker_id: str, running: list[str]) -> list[str]:
        """Say what runs; returns the runs that shall be cancelled."""
        body = {"running": running}
        return list(self._post(f"/workers/{quote(worker_id)}/heartbeat", body).get("cancel", ()))

    def claim(self, run_id: str, body: Mapping[str, Any]) -> Claim | None:
        """Take the run, or the first in line before it; None when none is queued."""
        try:
            answer = self._post(f"/runs/{quote(run_id)}/claim", body)
        except Refused as refusal:
            if refusal.status in (404, 409, 410):
                return None
            raise
        return Claim(
            run_id=answer.get("run_id") or run_id,
            spec=answer["spec"],
            attempt=answer["attempt"],
        )

    def post_events(
        self,
        run_id: str,
        attempt: int,
        events: list[Mapping[str, Any]],
        progress: Mapping[str, Any],
    ) -> bool:
        """Deliver events; returns whether the run shall be cancelled."""
        body = {"attempt": attempt, "events": events, "progress": progress}
        answer = self._post(f"/runs/{quote(run_id)}/events", body, retries=0)
        return bool(answer.get("cancel"))

    def upload(self, run_id: str, path: Path, sha256: str) -> None:
        """Bring one capture over, going on where an earlier try broke off."""
        for round_number in range(UPLOAD_ROUNDS):
            try:
                if self._upload_rest(run_id, path, sha256):
                    return
                time.sleep(RETRY_DELAYS_S[0])
            except DashboardAway:
                if round_number == UPLOAD_ROUNDS - 1:
                    raise
                time.sleep(RETRY_DELAYS_S[min(round_number, len(RETRY_DELAYS_S) - 1)])
        raise DashboardAway(f"{path.name}: not complete after {UPLOAD_ROUNDS} tries")

    def _upload_rest(self, run_id: str, path: Path, sha256: str) -> bool:
        where = f"/runs/{quote(run_id)}/captures/{sha256}"
        head = self._send("HEAD", where)
        if head.status_code == 200:
            return True
        if head.status_code != 404:
            _raise_refusal(head)
        size = path.stat().st_size
        offset = min(int(head.headers.get("Upload-Offset") or 0), size)
        answer = self._send(
            "PUT",
            where,
            params={"file": path.name, "offset": offset},
            content=_chunks(path, offset),
            headers={"Content-Length": str(size - offset)},
        )
        if answer.status_code == 201:
            return True
        if answer.status_code in (200, 202, 409):  # more is wanted, or from another offset
            return False
        _raise_refusal(answer)
        return False

    def finish(self, run_id: str, manifest: Mapping[str, Any]) -> list[str]:
        """Hand in the manifest; returns the hashes of captures that are still missing."""
        try:
            self._post(f"/runs/{quote(run_id)}/finish", manifest)
        except Refused as refusal:
            if refusal.status == 409 and refusal.body.get("missing"):
                return list(refusal.body["missing"])
            raise
        return []

    def _post(
        self, where: str, body: Mapping[str, Any], *, retries: int = len(RETRY_DELAYS_S)
    ) -> dict[str, Any]:
        for delay_s in (*RETRY_DELAYS_S[:retries], None):
            try:
                answer = self._send("POST", where, json=body)
                break
            except DashboardAway:
                if delay_s is None:
                    raise
                time.sleep(delay_s)
        if answer.status_code >= 300:
            _raise_refusal(answer)
        return dict(answer.json() if answer.content else {})

    def _send(self, method: str, where: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, where, **options)
        except httpx.TransportError as error:
            raise DashboardAway(f"dashboard {self._http.base_url}: {error}") from error
        if answer.status_code >= 500 or answer.status_code in (408, 429):
            raise DashboardAway(f"dashboard answered {answer.status_code}")
        return answer


def _chunks(path: Path, offset: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _raise_refusal(answer: httpx.Response) -> None:
    try:
        body = answer.json() if answer.content else {}
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    message = str(body.get("error") or body.get("message") or answer.reason_phrase)
    raise Refused(answer.status_code, message, body)


def version_complaint(theirs: str) -> tuple[bool, str] | None:
    """Compare the dashboard's version with ours: None, or (is fatal, sentence)."""
    if theirs == VERSION:
        return None
    text = f"worker is version {VERSION}, the dashboard {theirs}"
    if theirs.split(".")[0] != VERSION.split(".")[0]:
        return True, f"{text}: install the same major version on both"
    return False, f"{text}: they work together, but update the older one"
