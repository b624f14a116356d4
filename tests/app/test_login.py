"""The optional login: closed when its file is wrong, and only for those whom it names."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.serve import login
from app.serve.login import Access, load_login
from app.ui import login as page_login
from core.errors import UserError

SECRETS = """
[auth]
redirect_uri = "http://localhost:8501/oauth2callback"
cookie_secret = "0123456789abcdef0123456789abcdef"
client_id = "id"
client_secret = "secret"
server_metadata_url = "https://id.example/.well-known/openid-configuration"
[access]
users = ["Ada@example.com"]
domains = ["lab.example"]
"""


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "secrets.toml"
    monkeypatch.setenv("WARPBOARD_SECRETS", str(path))
    page_login._login.cache_clear()
    return path


def guarded() -> None:
    import streamlit as st

    from app.ui.login import account, require_login

    require_login()
    st.write("what the page shows")
    account()


def test_pages_are_open_without_a_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WARPBOARD_SECRETS", raising=False)
    monkeypatch.setattr(login, "ROOT", tmp_path)
    page_login._login.cache_clear()

    at = AppTest.from_function(guarded).run()

    assert [m.value for m in at.markdown] == ["what the page shows"]
    assert not at.button


def test_configured_login_shows_a_button_and_nothing_else(secrets: Path) -> None:
    secrets.write_text(SECRETS)

    at = AppTest.from_function(guarded).run()

    assert not at.exception
    assert [b.label for b in at.button] == ["Log in"]
    assert not at.markdown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"no \[auth\] section"),
        ("[auth", "fix it"),
        ("[auth]\n", r"no \[auth\] section"),
        ("auth = 'yes'", r"no \[auth\] section"),
        ("[auht]\nclient_id = 'x'", r"no \[auth\] section"),
        (SECRETS.replace("redirect_uri", "redirect"), "redirect_uri is missing"),
        (SECRETS.replace("/oauth2callback", "/"), "redirect_uri must be"),
        (SECRETS.replace("0123456789abcdef", "0"), "cookie_secret must have 32"),
        (SECRETS.replace("client_secret", "client"), "no complete provider"),
        (SECRETS.partition("[access]")[0], "who may enter"),
        (SECRETS.replace('["Ada@example.com"]', "7"), "users must be a list"),
        (SECRETS.replace('["Ada@example.com"]', '[["a@b.c"]]'), "users must be a list"),
        (SECRETS.replace("Ada@example.com", "ada"), "'ada' is not an address"),
        (SECRETS.replace("Ada@example.com", "*@lab.example, x"), "is not an address"),
        (SECRETS.replace('"lab.example"', '"*.lab.example"'), "is not a domain"),
        (SECRETS.replace('"lab.example"', '"@"'), "is not a domain"),
        (SECRETS.replace('"lab.example"', '" "'), "is not a domain"),
        (SECRETS.replace("https://id.example", "http://id.example"), "must begin with https"),
        (SECRETS.replace("https://id.example", "ftp://id.example"), "must begin with https"),
        (SECRETS.replace('client_secret = "secret"', "client_secret = 7"), "no complete provider"),
        (SECRETS.replace('client_id = "id"', "client_id = ''"), "no complete provider"),
        (SECRETS.replace("[access]", "[acess]"), "who may enter"),
        ("access = 'all'\n" + SECRETS.partition("[access]")[0], "who may enter"),
        (SECRETS.partition("[access]")[0] + "[access]\nanyone = 'true'", "who may enter"),
        (SECRETS.partition("[access]")[0] + "[access]\nanyone = 1", "who may enter"),
        (SECRETS + "[auth]\n", "fix it"),
        (SECRETS.replace("http://localhost:8501", "http://["), "redirect_uri: .* is no address"),
        (SECRETS.replace("http://localhost:8501", "http://a\\u2100b"), "is no address"),
        (SECRETS.replace("http://localhost:8501", "http://localhost:99999"), "is no address"),
        (SECRETS.replace("http://localhost:8501", "http://"), "is no address"),
        (SECRETS.replace("http://localhost:8501", "http://u:p@localhost"), "is no address"),
        (SECRETS.replace("/oauth2callback", "/oauth2callback?next=x"), "redirect_uri must be"),
        (SECRETS.replace("https://id.example", "https://"), "must begin with https|is no address"),
        (
            SECRETS.replace("https://id.example", "https://[id"),
            "server_metadata_url: .* no address",
        ),
        (SECRETS.replace("https://id.example", " https://id.example"), "is no address"),
        (SECRETS.replace("https://id.example", "https://id.example\\n"), "is no address"),
        (SECRETS.replace("[access]", "jwks_uri = 'http://id.example'\n[access]"), "jwks_uri must"),
        (
            SECRETS.replace("[access]", "[auth.client_kwargs]\nverify = false\n[access]"),
            "certificates",
        ),
        (
            SECRETS.replace("[access]", "[auth.client_kwargs]\nverify = 'no'\n[access]"),
            "certificates",
        ),
        (SECRETS.replace("id.example", "login.microsoftonline.com/common"), "name your own tenant"),
        (
            SECRETS.replace("id.example", "Login.MicrosoftOnline.com//Organizations"),
            "your own tenant",
        ),
        (SECRETS.replace("0123456789abcdef", "x" * 16), "cookie_secret can be guessed"),
        (SECRETS.replace("0123456789abcdef", "change-me, please"), "cookie_secret can be guessed"),
        (SECRETS.replace('client_id = "id"', 'client_id = " "'), "no complete provider"),
        (SECRETS.replace("users =", "user ="), "user: it knows only users"),
        (SECRETS.replace("users =", "Users ="), "Users: it knows only users"),
        (SECRETS + "anyone = true", "anyone = true lets everybody in"),
        (SECRETS.replace("Ada@example.com", "*@example.com"), "is not an address"),
        (SECRETS.replace("Ada@example.com", "ada@example.com\\u200b"), "is not an address"),
        (SECRETS.replace("Ada@example.com", "ada@example.com\\n"), "is not an address"),
        (SECRETS.replace('"lab.example"', '"lab.example."'), "is not a domain"),
        ("a=" + "[" * 9000, "fix it"),
        ("\ufeff[[auth]]\nclient_id = 'x'", "fix it"),
        (SECRETS.replace("[access]", "[auth.google]\nclient_id = 'x'\n[access]"), "no complete"),
    ],
)
def test_a_secrets_file_without_a_valid_login_stops_the_start(
    secrets: Path, text: str, said: str
) -> None:
    secrets.write_text(text)

    with pytest.raises(UserError, match=said) as refused:
        load_login()

    assert str(secrets) in str(refused.value)


def test_a_secrets_file_that_is_named_and_not_there_stops_the_start(secrets: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_login()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_secrets_file_that_others_may_write_stops_the_start(secrets: Path, mode: int) -> None:
    real = secrets.with_name("real.toml")
    real.write_text(SECRETS)
    real.chmod(mode)
    secrets.symlink_to(real)  # a link's own mode says nothing
    with pytest.raises(UserError, match="other users may change the login; chmod 600"):
        load_login()
    real.chmod(0o640)
    assert load_login() is not None


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "nowhere", "holes", "utf-16"])
@pytest.mark.parametrize("is_named", [True, False])
def test_what_stands_in_the_place_of_the_secrets_file_stops_the_start(
    secrets: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_named: bool
) -> None:
    if not is_named:
        monkeypatch.delenv("WARPBOARD_SECRETS")
        monkeypatch.setattr(login, "ROOT", secrets.parent)
        secrets = secrets.parent / ".streamlit" / "secrets.toml"
        secrets.parent.mkdir()
    if kind == "folder":
        secrets.mkdir()
    elif kind == "pipe":
        os.mkfifo(secrets)
    elif kind in ("device", "nowhere"):
        secrets.symlink_to("/dev/zero" if kind == "device" else "not-mounted")
    else:
        secrets.write_text(SECRETS, encoding="utf-16" if kind == "utf-16" else "utf-8")
        if kind == "holes":
            os.truncate(secrets, 1 << 33)

    with pytest.raises(UserError, match=re.escape(str(secrets))):
        load_login()


def test_a_home_that_nobody_has_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARPBOARD_SECRETS", "~nobody-has-this-name/secrets.toml")
    with pytest.raises(UserError, match="nobody has this home"):
        load_login()


def test_a_folder_in_which_others_may_replace_the_secrets_file_stops_the_start(
    secrets: Path, tmp_path: Path
) -> None:
    real = tmp_path / "shared" / "real.toml"
    real.parent.mkdir()
    real.write_text(SECRETS)
    secrets.symlink_to(real)
    assert load_login() is not None

    for mode, is_refused in ((0o777, True), (0o1777, False), (0o757, True), (0o755, False)):
        real.parent.chmod(mode)
        if is_refused:
            with pytest.raises(UserError, match="others may put another file in its place"):
                load_login()
        else:
            assert load_login() is not None


def test_a_tenant_of_ones_own_may_say_who_may_enter(secrets: Path) -> None:
    for text in (
        SECRETS.replace("id.example", "login.microsoftonline.com/6f1c-lab/v2.0"),
        SECRETS.replace("id.example", "login.microsoftonline.com/common").partition("users")[0]
        + "anyone = true",
    ):
        secrets.write_text(text)
        assert load_login() is not None


def test_a_letter_beyond_ascii_in_the_list_is_no_other_letter(secrets: Path) -> None:
    secrets.write_text(SECRETS.replace("lab.example", "\u212ait.example"))
    found = load_login()
    assert found is not None
    assert not found.access.allows({"is_logged_in": True, "email": "eve@kit.example"})


def test_a_complete_file_is_a_login(secrets: Path) -> None:
    named = SECRETS.replace("client_id", "[auth.lab]\nclient_id")
    for text, providers in ((SECRETS, ("default",)), (named, ("lab",))):
        secrets.write_text(text)
        found = load_login()
        assert found is not None
        assert found.providers == providers


@pytest.mark.parametrize(
    ("claims", "may_enter"),
    [
        ({"is_logged_in": True, "email": "ada@example.com"}, True),
        ({"is_logged_in": True, "email": "ADA@example.com"}, True),
        ({"is_logged_in": True, "email": "bob@lab.example", "email_verified": True}, True),
        ({"is_logged_in": True, "email": "bob@lab.example", "email_verified": False}, False),
        ({"is_logged_in": True, "email": "bob@evil.lab.example"}, False),
        ({"is_logged_in": True, "email": "bob@lab.example@evil.example"}, False),
        ({"is_logged_in": True, "email": "lab.example"}, False),
        ({"is_logged_in": True, "email": "bob@lab.example", "email_verified": "false"}, False),
        ({"is_logged_in": True, "email": "bob@lab.example", "email_verified": 0}, False),
        ({"is_logged_in": True, "email": "@lab.example"}, False),
        ({"is_logged_in": True, "email": "bob@lab.example."}, False),
        ({"is_logged_in": True, "email": "eve@evil.example@lab.example"}, False),
        ({"is_logged_in": True, "email": "eve@evil.example\n@lab.example"}, False),
        ({"is_logged_in": True, "email": '"eve evil" <x@lab.example'}, False),
        ({"is_logged_in": True, "email": "bo\u212a@kit.example"}, False),
        ({"is_logged_in": True, "email": ["ada@example.com"]}, False),
        ({"is_logged_in": True, "email": "ada@example.com\u200b"}, False),
        ({"is_logged_in": True, "name": "ada@example.com"}, False),
        ({"is_logged_in": "", "email": "ada@example.com"}, False),
        ({"is_logged_in": True}, False),
        ({"is_logged_in": False, "email": "ada@example.com"}, False),
        ({}, False),
    ],
)
def test_only_the_allowed_enter(claims: dict[str, Any], may_enter: bool) -> None:
    access = Access(
        users=frozenset({"ada@example.com", "bok@kit.example"}), domains=frozenset({"lab.example"})
    )
    assert access.allows(claims) is may_enter
