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
from urllib.parse import SplitResult, urlsplit

from app.serve.addresses import is_loopback
from captures.contents import open_plain
from core.config import ROOT, expanded
from core.errors import CaptureError, UserError

PROVIDER_FIELDS = ("client_id", "client_secret", "server_metadata_url")
MIN_COOKIE_SECRET_CHARS = 32
MIN_DIFFERENT_CHARS = 8
MAX_BYTES = 1 << 20
_PLACEHOLDER = re.compile(
    r"change.?me|your.?(?:own)?.?secret|cookie.?secret|openssl rand", re.IGNORECASE
)
_MAKES_ONE = "`openssl rand -hex 32` makes one"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_IS_URL = re.compile(r".*(?:_url|_uri|_endpoint|issuer)").fullmatch
_ANY_TENANT = re.compile(
    r"https://login\.(?:microsoftonline\.(?:com|us)|partner\.microsoftonline\.cn|windows\.net)(?::\d+)?"
    r"/+(?:common|organizations|consumers)(?:/|\Z)",
    re.IGNORECASE,
)
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
        email = _folded(email)
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
    return expanded(named) if named else ROOT / ".streamlit" / "secrets.toml"


def load_login(base_path: str = "") -> Login | None:
    """Return the configured login; None without a secrets file.

    UserError when there is a file and no complete login in it: pages never open by a mistake in it.
    Nor is a file taken that others may write: they would say who enters.
    """
    path = secrets_path()
    if not os.path.lexists(path):  # a link that leads nowhere is a login that is not there
        if os.environ.get("WARPBOARD_SECRETS"):
            raise UserError(f"WARPBOARD_SECRETS: {path} does not exist")
        return None
    text = _text_of(path)
    try:
        return _checked(tomllib.loads(text), base_path)
    except (tomllib.TOMLDecodeError, RecursionError, UserError) as exc:
        remedy = "fix it, or remove the file to serve without a login"
        raise UserError(f"{path}: {exc}; {remedy}") from exc


def _text_of(path: Path) -> str:
    """Return the text of the secrets file; UserError for one that is not its owner's alone."""
    try:
        with open_plain(path, follows_links=True) as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS_WRITE:
                raise UserError(f"{path}: other users may change the login; chmod 600 {path}")
            data = file.read(MAX_BYTES + 1)
        for folder in {path.absolute().parent, Path(os.path.realpath(path)).parent}:
            if _is_open_folder(folder):
                where = f"others may put another file in its place; chmod go-w {folder}"
                raise UserError(f"{path}: {where}")
        if len(data) > MAX_BYTES:
            raise UserError(f"{path}: the login has more than {MAX_BYTES} bytes; nothing is served")
        return data.decode("utf-8")
    except CaptureError as exc:
        raise UserError(f"{path}: the login is not a regular file; nothing is served") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise UserError(f"{path}: the login cannot be read ({exc}); nothing is served") from exc


def _is_open_folder(folder: Path) -> bool:
    """Say whether others may replace what lies in it; root's group is root."""
    seen = folder.stat()
    others = stat.S_IWOTH if seen.st_gid == 0 else _OTHERS_WRITE
    return bool(seen.st_mode & others) and not seen.st_mode & stat.S_ISVTX


def _checked(secrets: Mapping[str, Any], base_path: str) -> Login:
    auth = secrets.get("auth")
    if not isinstance(auth, dict) or not auth:
        raise UserError("there is no [auth] section, so no login")
    redirect, secret = _text(auth, "redirect_uri"), _text(auth, "cookie_secret")
    _check_redirect(redirect, f"{base_path}/oauth2callback")
    if len(secret) < MIN_COOKIE_SECRET_CHARS:
        why = f"[auth] cookie_secret must have {MIN_COOKIE_SECRET_CHARS} characters or more"
        raise UserError(f"{why}; {_MAKES_ONE}")
    if len(set(secret)) < MIN_DIFFERENT_CHARS or _PLACEHOLDER.search(secret):
        raise UserError(f"[auth] cookie_secret can be guessed, and so can sessions; {_MAKES_ONE}")
    named = {k: v for k, v in auth.items() if isinstance(v, dict) and k != "client_kwargs"}
    providers = [DEFAULT] * _is_provider(auth) + list(named)
    if not providers or not all(_is_provider(section) for section in named.values()):
        fields = ", ".join(PROVIDER_FIELDS)
        raise UserError(f"[auth] names no complete provider: each needs {fields}")
    access = _access(secrets.get("access"))
    for section in (auth, *named.values()):
        _check_addresses(section)
        _check_tenant(section, access)
    return Login(providers=tuple(providers), cookie_secret=secret, access=access)


def _is_provider(section: Mapping[str, Any]) -> bool:
    return all(isinstance(section.get(f), str) and section[f].strip() for f in PROVIDER_FIELDS)


def _split(url: str, field: str) -> SplitResult:
    """Return the parts of an address; UserError for what is none."""
    try:
        parts = urlsplit(url)
        is_address = parts.hostname and (parts.port or 1) and parts.username is None
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or " " in url:
        raise UserError(f"[auth] {field}: {url[:80]!r} is no address")
    return parts


def _check_redirect(url: str, wanted: str) -> None:
    parts = _split(url, "redirect_uri")
    is_plain = parts.scheme in ("http", "https") and not (parts.query or parts.fragment)
    if parts.path != wanted or not is_plain:
        raise UserError(f"[auth] redirect_uri must be the pages' address with {wanted}")


def _check_addresses(section: Mapping[str, Any]) -> None:
    """Refuse a provider over plain HTTP: who is on the way would say who may enter."""
    for name, value in section.items():
        if name != "redirect_uri" and isinstance(value, str) and _IS_URL(name):
            parts = _split(value, name)
            if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
                raise UserError(f"[auth] {name} must begin with https://")
    options = section.get("client_kwargs", {})
    if not isinstance(options, dict) or options.get("verify", True) is not True:
        raise UserError("[auth] client_kwargs must not turn the check of certificates off")


def _check_tenant(section: Mapping[str, Any], access: Access) -> None:
    """Refuse a list of addresses that anybody's own directory at the provider may state."""
    url = str(section.get("server_metadata_url", ""))
    if _ANY_TENANT.match(url) and not access.is_anyone:
        raise UserError(
            "[auth] server_metadata_url takes every Microsoft tenant; each may state any address:"
            " name your own tenant there in place of common"
        )


def _text(section: Mapping[str, Any], name: str) -> str:
    value = section.get(name)
    if not isinstance(value, str) or not value:
        raise UserError(f"[auth] {name} is missing")
    return value


def _access(section: Any) -> Access:
    section = section if isinstance(section, dict) else {}
    lists: list[frozenset[str]] = []
    forms = {"users": (_EMAIL, "an address"), "domains": (_DOMAIN, "a domain")}
    if unknown := [name for name in section if name not in (*forms, "anyone")]:
        raise UserError(f"[access] {unknown[0]}: it knows only users, domains and anyone")
    for name, (form, what) in forms.items():
        values = section.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
            raise UserError(f"[access] {name} must be a list of texts")
        plain = [v.strip(" ").removeprefix("@" if name == "domains" else "") for v in values]
        for value in plain:
            if not form.match(value) or not value.isprintable() or "*" in value:
                raise UserError(f"[access] {name}: {value!r} is not {what}, so it lets nobody in")
        lists.append(frozenset(map(_folded, plain)))
    is_anyone = section.get("anyone") is True
    if is_anyone and (lists[0] or lists[1]):
        raise UserError("[access] anyone = true lets everybody in, whatever users and domains say")
    if not (lists[0] or lists[1] or is_anyone):
        remedy = "users = [...], domains = [...], or anyone = true for all whom the provider knows"
        raise UserError(f"[access] does not say who may enter: {remedy}")
    return Access(users=lists[0], domains=lists[1], is_anyone=is_anyone)


def _folded(address: str) -> str:
    """Return it in lower case; letters beyond ASCII stay (the Kelvin sign would become a k)."""
    return address.lower() if address.isascii() else address
