"""The optional login: nobody is asked without a configuration, and nothing is shown without one."""

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app.ui import login


def guarded() -> None:
    import streamlit as st

    from app.ui.login import require_login

    require_login()
    st.write("what the page shows")


def test_pages_are_open_without_a_configuration() -> None:
    at = AppTest.from_function(guarded).run()
    assert [m.value for m in at.markdown] == ["what the page shows"]


def test_configured_login_shows_a_button_and_nothing_else() -> None:
    at = AppTest.from_function(guarded)
    at.secrets["auth"] = {"redirect_uri": "http://localhost:8501/oauth2callback"}
    at.run()
    assert not at.exception
    assert [b.label for b in at.button] == ["Log in"]
    assert not at.markdown


def test_login_is_configured_by_an_auth_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st.secrets, "load_if_toml_exists", lambda: False)
    assert login.is_configured() is False
