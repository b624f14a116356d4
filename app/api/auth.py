"""Bearer tokens: compared in constant time, kept as hashes, failed tries limited by address."""

import hashlib
import hmac
import os
import secrets
import time
from collections import deque
from pathlib import Path

from starlette.requests import Request

from app.api.errors import ApiError
from app.api.state import ApiState, in_thread, state_of
from app.serve.addresses import client_of
from core.config import DataDir
from core.errors import UserError
from db import Database
from db.tokens import EMBEDDED, note_use, token_digests

MAX_FAILURES = 20
FAILURE_WINDOW_S = 60.0
MIN_UNGUESSED_CHARS = 40
"Ours have 43; an operator's own may be short."
MAX_ADDRESSES = 10_000
TOKENS_AGE_S = 2.0
"How long a token that was replaced may still be taken."
NOTE_USE_S = 60.0
_failures: dict[str, deque[float]] = {}


def token_path(data_dir: DataDir) -> Path:
    """Return where the token of this host's workers lies (WARPBOARD_TOKEN_FILE overrides)."""
    chosen = os.environ.get("WARPBOARD_TOKEN_FILE")
    return Path(chosen) if chosen else data_dir.token_path


def ensure_token(data_dir: DataDir) -> str:
    """Return the token of this host's workers, made (mode 0600) if there is none."""
    path = token_path(data_dir)
    try:
        token = path.read_text().strip()
        if token:
            return token
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise UserError(f"{path}: the token cannot be read ({why})") from exc
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    partial = path.with_name(path.name + ".new")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token + "\n")
    os.replace(partial, path)
    return token


async def check_token(request: Request) -> str:
    """Return the label of the caller's token; ApiError 401 without a good one, 429 after many.

    A token too long to be guessed is looked at whatever others try from its address: who guesses
    tokens shall not cut off the workers of the same host, also of one that has just started.
    """
    state = state_of(request)
    address = client_of(request.client.host) if request.client else "unknown"
    token = _token(request)
    presented = hashlib.sha256(token.encode()).hexdigest()
    is_late = _num_failures(address) >= MAX_FAILURES
    if is_late and len(token) < MIN_UNGUESSED_CHARS:
        raise ApiError(429, "too many wrong tokens from this address; wait a minute")
    label = _label_of(state, presented)
    is_old = time.monotonic() - state.tokens_read_s > TOKENS_AGE_S
    if is_old or (label is None and not is_late):
        await in_thread(request, _read_tokens, state)
        label = _label_of(state, presented)
    if label is None:
        if is_late:
            raise ApiError(429, "too many wrong tokens from this address; wait a minute")
        _failures.setdefault(address, deque(maxlen=MAX_FAILURES)).append(time.monotonic())
        raise ApiError(401, "a bearer token of this dashboard is needed")
    if label != EMBEDDED and time.monotonic() - state.used_s.get(label, -NOTE_USE_S) >= NOTE_USE_S:
        state.used_s[label] = time.monotonic()
        await in_thread(request, note_use, label)
    return label


def _token(request: Request) -> str:
    """Return the bearer token, "" without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _read_tokens(db: Database, state: ApiState) -> None:
    own = hashlib.sha256(ensure_token(state.data_dir).encode()).hexdigest()
    state.tokens = {own: EMBEDDED, **token_digests(db)}
    state.tokens_read_s = time.monotonic()


def _label_of(state: ApiState, presented: str) -> str | None:
    match = None
    for digest, label in state.tokens.items():  # all of them, whichever fits: equal time
        if hmac.compare_digest(digest, presented):
            match = label
    return match


def _num_failures(address: str) -> int:
    if len(_failures) > MAX_ADDRESSES:
        _failures.clear()
    recent = _failures.get(address)
    if not recent:
        return 0
    limit = time.monotonic() - FAILURE_WINDOW_S
    return sum(at > limit for at in recent)
