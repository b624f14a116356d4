"""Under which names pages are served: a page elsewhere must not reach a dashboard of this host."""

import pytest

from app.stack import LOOPBACK, allowed_hosts


@pytest.mark.parametrize(
    ("address", "published", "chosen", "names"),
    [
        ("127.0.0.1", None, None, LOOPBACK),
        ("::1", None, None, LOOPBACK),
        ("0.0.0.0", None, None, ()),
        ("10.0.0.5", None, None, ()),
        ("0.0.0.0", "127.0.0.1:8501", None, LOOPBACK),
        ("0.0.0.0", "10.0.0.5:8501", None, ()),
        ("127.0.0.1", None, "gpu.example.com, localhost", ("gpu.example.com", "localhost")),
        ("127.0.0.1", None, "*", ("*",)),
    ],
)
def test_names_follow_from_who_can_reach_the_address(
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    published: str | None,
    chosen: str | None,
    names: tuple[str, ...],
) -> None:
    for variable, value in (("WARPBOARD_PUBLISH", published), ("WARPBOARD_HOSTS", chosen)):
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    assert allowed_hosts(address) == names
