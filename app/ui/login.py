"""A login for the pages, where the operator configures one: OpenID Connect, as Streamlit offers it.

It guards the pages alone. The API has its tokens.
"""

import streamlit as st


def require_login() -> None:
    """Stop the page with a login button, unless no login is configured or somebody is logged in.

    Configured is what has an `[auth]` section in `.streamlit/secrets.toml`.
    """
    if not is_configured() or st.user.get("is_logged_in"):
        return
    st.title("Warpboard")
    st.button("Log in", on_click=st.login, type="primary")
    st.stop()


def is_configured() -> bool:
    """Say whether the operator wants a login."""
    return st.secrets.load_if_toml_exists() and "auth" in st.secrets
