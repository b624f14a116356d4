"""The login of the pages, where the operator configures one; `app.serve.front` asks for it first.

It guards the pages alone. The API has its tokens.
"""

from functools import cache

import streamlit as st

from app.serve.addresses import base_path
from app.serve.login import Login, load_login
from app.ui.widgets import plain_markdown


@cache
def _login() -> Login | None:
    return load_login(base_path())


def require_login() -> None:
    """Stop the page, unless login is off or an allowed user is logged in."""
    login = _login()
    if login is None or login.access.allows(st.user.to_dict()):
        return
    st.title("Warpboard")
    if st.user.get("is_logged_in"):
        st.error(plain_markdown(f"{_name()} may not use this dashboard."))
        st.button("Log out", on_click=st.logout)
    else:
        names = login.providers
        for name in names:
            label = "Log in" if len(names) == 1 else plain_markdown(f"Log in with {name}")
            st.button(label, on_click=st.login, args=(name,), type="primary")
    st.stop()


def account() -> None:
    """Say who is logged in, with a way out, below the page; nothing without a login.

    Drawn before the page, which may stop the script, and moved below it by its style.
    """
    if _login() is None:
        return
    st.html("<style>:has(> .st-key-account){order:99}</style>")
    bar = st.container(horizontal=True, vertical_alignment="center", key="account")
    bar.caption(plain_markdown(f"Logged in as {_name()}"))
    bar.button("Log out", on_click=st.logout, type="tertiary", icon=":material/logout:")


def _name() -> str:
    return str(st.user.get("email") or st.user.get("name") or "somebody")[:200]
