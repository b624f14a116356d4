"""The login of the pages: read from the secrets file, closed when that file is wrong.

`[auth]` configures OpenID Connect as Streamlit's `st.login` takes it; `[access]` says who of those
that the provider knows may enter.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.serve.addresses import is_loopback
from core.config import ROOT
from core.errors import UserError

PROVIDER_FIELDS = ("client_id", "client_secret", "server_metadata_url")
MIN_COOKIE_SECRET_CHARS = 32
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\Z")
_DOMAIN = re.compile(r"(?:[\w-]+\.)*[\w-]+\Z")
DEFAULT = "default"
"""Streamlit's name for the provider configured directly in `[auth]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may enter."""

    users: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    is_anyone: bool = False
    "Everybody whom the provider lets log in."

    def allows(self, claims: Mapping[str, Any]) -> bool:
        """Say whether a person with these claims of the provider may enter."""
        if not claims.get("is_logged_in"):
            return False
        if self.is_anyone:
            return True
        email = claims.get("email")
        is_unverified = str(claims.get("email_verified", True)).lower() in ("false", "0", "none")
        if not isinstance(email, str) or is_unverified:
            return False
        # Letters beyond ASCII may become ASCII ones in lower case (the Kelvin sign a k).
        email = email.lower() if email.isascii() else email
        return email in self.users or (
            bool(_EMAIL.match(email)) and (email.rpartition("@")[2] in self.domains)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login that is configured and complete."""

    providers: tuple[str, ...]
    cookie_secret: str
    access: Access

    def claims_of(self, cookie_header: str) -> dict[str, Any]:
        """Return the claims in a request's signed cookie; {} without a valid one."""
        from streamlit.auth_util import get_cookie_with_chunks
        from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
        from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

        try:
            cookies = {name: m.value for name, m in SimpleCookie(cookie_header).items()}
        except CookieError:
            return {}

        def one(name: str) -> bytes | None:
            value = cookies.get(name)
            if value is None:
                return None
            return decode_signed_value(
                self.cookie_secret, name, value.encode("latin-1", errors="replace")
            )

        try:
            claims = json.loads(get_cookie_with_chunks(one, USER_COOKIE_NAME) or b"{}")
        except ValueError:
            return {}
        return claims if isinstance(claims, dict) else {}


def secrets_path() -> Path:
    """Return the one secrets file that is read: WARPBOARD_SECRETS, else that of the checkout."""
    named = os.environ.get("WARPBOARD_SECRETS")
    return Path(named).expanduser() if named else ROOT / ".streamlit" / "secrets.toml"


def load_login(base_path: str = "") -> Login | None:
    """Return the configured login; None without a secrets file.

    UserError when there is a file and no complete login in it: pages never open by a mistake in it.
    Nor is a file taken that others may write: they would say who enters.
    """
    path = secrets_path()
    try:
        if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UserError(f"{path}: other users may change the login; chmod 600 {path}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.environ.get("WARPBOARD_SECRETS"):
            raise UserError(f"WARPBOARD_SECRETS: {path} does not exist") from None
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise UserError(f"{path}: the login cannot be read ({exc}); nothing is served") from exc
    try:
        return _checked(tomllib.loads(text), base_path)
    except (tomllib.TOMLDecodeError, UserError) as exc:
        remedy = "fix it, or remove the file to serve without a login"
        raise UserError(f"{path}: {exc}; {remedy}") from exc


def _checked(secrets: Mapping[str, Any], base_path: str) -> Login:
    auth = secrets.get("auth")
    if not isinstance(auth, dict) or not auth:
        raise UserError("there is no [auth] section, so no login")
    redirect, secret = _text(auth, "redirect_uri"), _text(auth, "cookie_secret")
    wanted = f"{base_path}/oauth2callback"
    if urlsplit(redirect).scheme not in ("http", "https") or urlsplit(redirect).path != wanted:
        raise UserError(f"[auth] redirect_uri must be the pages' address with {wanted}")
    if len(secret) < MIN_COOKIE_SECRET_CHARS:
        why = f"[auth] cookie_secret must have {MIN_COOKIE_SECRET_CHARS} characters or more"
        raise UserError(f"{why}; `openssl rand -hex 32` makes one")
    named = {k: v for k, v in auth.items() if isinstance(v, dict) and k != "client_kwargs"}
    providers = [DEFAULT] * _is_provider(auth) + list(named)
    if not providers or not all(_is_provider(section) for section in named.values()):
        fields = ", ".join(PROVIDER_FIELDS)
        raise UserError(f"[auth] names no complete provider: each needs {fields}")
    for section in (auth, *named.values()):
        _check_metadata(section.get("server_metadata_url"))
    access = _access(secrets.get("access"))
    return Login(providers=tuple(providers), cookie_secret=secret, access=access)


def _is_provider(section: Mapping[str, Any]) -> bool:
    return all(isinstance(section.get(f), str) and section[f] for f in PROVIDER_FIELDS)


def _check_metadata(url: Any) -> None:
    """Refuse a provider over plain HTTP: who is on the way would say who may enter."""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise UserError("[auth] server_metadata_url must begin with https://")


def _text(section: Mapping[str, Any], name: str) -> str:
    value = section.get(name)
    if not isinstance(value, str) or not value:
        raise UserError(f"[auth] {name} is missing")
    return value


def _access(section: Any) -> Access:
    section = section if isinstance(section, dict) else {}
    lists: list[frozenset[str]] = []
    forms = {"users": (_EMAIL, "an address"), "domains": (_DOMAIN, "a domain")}
    for name, (form, what) in forms.items():
        values = section.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
            raise UserError(f"[access] {name} must be a list of texts")
        plain = [v.strip().removeprefix("@" if name == "domains" else "").lower() for v in values]
        for value in plain:
            if not form.match(value):
                raise UserError(f"[access] {name}: {value!r} is not {what}, so it lets nobody in")
        lists.append(frozenset(plain))
    is_anyone = section.get("anyone") is True
    if not (lists[0] or lists[1] or is_anyone):
        remedy = "users = [...], domains = [...], or anyone = true for all whom the provider knows"
        raise UserError(f"[access] does not say who may enter: {remedy}")
    return Access(users=lists[0], domains=lists[1], is_anyone=is_anyone)
