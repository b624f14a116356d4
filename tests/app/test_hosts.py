"""Under which names and paths pages are served, and who may be let in from other hosts."""

import socket
from pathlib import Path

import pytest

from app.serve import login
from app.serve.addresses import LOOPBACK, base_path, neighbours, served_hosts
from app.serve.publish import VARIABLE, check_publishing, who_reaches
from core.errors import UserError
from tests.app.test_login import SECRETS

OWN = tuple(dict.fromkeys((socket.gethostname().lower(), socket.gethostname().split(".")[0])))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PUBLISH", "CONTAINER_PORT", "HOSTS", "BASE_PATH", "SECRETS", "OPEN_TO_NETWORK"):
        monkeypatch.delenv(f"WARPBOARD_{name}", raising=False)
    monkeypatch.setattr(login, "ROOT", tmp_path)


@pytest.mark.parametrize(
    ("address", "published", "chosen", "names"),
    [
        ("127.0.0.1", None, None, LOOPBACK),
        ("::1", None, None, LOOPBACK),
        ("0.0.0.0", None, None, (*LOOPBACK, *OWN)),
        ("10.0.0.5", None, None, (*LOOPBACK, "10.0.0.5", *OWN)),
        ("0.0.0.0", "127.0.0.1:8501", None, LOOPBACK),
        ("0.0.0.0", "[::1]:8501", None, LOOPBACK),
        ("0.0.0.0", "8501", None, (*LOOPBACK, *OWN)),
        ("0.0.0.0", "10.0.0.5:8501", None, (*LOOPBACK, "10.0.0.5", *OWN)),
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
    for variable, value in (("WARPBOARD_CONTAINER_PORT", published), ("WARPBOARD_HOSTS", chosen)):
        if value is not None:
            monkeypatch.setenv(variable, value)
    assert served_hosts(address) == names


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.5", "gpu.example.com"])
def test_pages_beyond_this_host_are_a_decision(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    with pytest.raises(UserError, match="--open-to-network") as refused:
        check_publishing(address, is_asked=False)

    assert "--workers-host" in str(refused.value)
    assert "delete runs" in check_publishing(address, is_asked=True)
    monkeypatch.setenv(VARIABLE, "1")
    assert "delete runs" in check_publishing(address, is_asked=False)


@pytest.mark.parametrize("published", ["127.0.0.1:8501", "localhost:8501", "[::1]:8501"])
def test_a_container_that_is_published_on_loopback_needs_no_decision(
    monkeypatch: pytest.MonkeyPatch, published: str
) -> None:
    monkeypatch.setenv("WARPBOARD_CONTAINER_PORT", published)

    assert "this host alone" in check_publishing("0.0.0.0", is_asked=False)


def test_a_login_is_decision_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "secrets.toml"
    path.write_text(SECRETS)
    monkeypatch.setenv("WARPBOARD_SECRETS", str(path))

    told = check_publishing("10.0.0.5", is_asked=False)

    assert "want a login" in told
    assert "ada@example.com" in told


def test_a_setting_of_compose_in_a_shell_opens_nothing_outside_a_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARPBOARD_PUBLISH", "127.0.0.1:8501")

    with pytest.raises(UserError, match="--open-to-network"):
        check_publishing("0.0.0.0", is_asked=False)
    assert served_hosts("0.0.0.0") == (*LOOPBACK, *OWN)


def test_without_a_login_it_is_said_who_can_do_what() -> None:
    assert "submit and cancel jobs" in who_reaches("0.0.0.0", None)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ""),
        ("/", ""),
        ("warp", "/warp"),
        ("/a/b/", "/a/b"),
        (" x ", "/x"),
        ("//x", "/x"),
        ("/x.y/~z/...", "/x.y/~z/..."),
        ("/gpu/api", "/gpu/api"),
    ],
)
def test_base_path_is_one_form(monkeypatch: pytest.MonkeyPatch, text: str, path: str) -> None:
    monkeypatch.setenv("STREAMLIT_SERVER_BASE_URL_PATH", text)
    assert base_path() == path


@pytest.mark.parametrize(
    "text",
    [
        "//evil.example/<b>",
        "/../x",
        "/x/..",
        "/x/./y",
        "..",
        ".",
        "/x//y",
        "%2f",
        "/x%2fy",
        "/x?y",
        "/x#y",
        "/x;y",
        "/x\\y",
        "/x\ny",
        "/x\ty",
        "/caf\u00e9",
        "/\uff0fx",
        "https://h/x",
        "/" + "x" * 201,
        "/api",
        "/api/v1",
        "/_stcore",
        "/static/x",
        "/Auth",
        "login",
        "oauth2callback",
        "perfetto",
    ],
)
def test_base_path_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WARPBOARD_BASE_PATH", text)
    with pytest.raises(UserError, match="WARPBOARD_BASE_PATH"):
        base_path()


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
tap0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0
eth1\t0001590A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


@pytest.mark.parametrize(
    ("published", "address", "is_refused"),
    [
        ("127.0.0.1:8501", "172.18.0.3", True),
        ("127.0.0.1:8501", "::ffff:172.18.0.3", True),
        ("127.0.0.1:8501", "10.89.1.7", True),
        ("127.0.0.1:8501", "172.18.0.1", False),  # the host, through the published port
        ("127.0.0.1:8501", "10.89.1.1", False),
        ("127.0.0.1:8501", "172.18.0.9", False),  # this container
        ("127.0.0.1:8501", "127.0.0.1", False),
        ("127.0.0.1:8501", "192.168.65.1", False),
        ("0.0.0.0:8501", "172.18.0.3", False),
        ("", "172.18.0.3", False),
    ],
)
def test_other_containers_reach_no_page_that_is_published_for_this_host_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, published: str, address: str, is_refused: bool
) -> None:
    (tmp_path / "route").write_text(ROUTES)
    monkeypatch.setattr(socket, "gethostbyname_ex", lambda name: (name, [], ["172.18.0.9"]))
    monkeypatch.setenv("WARPBOARD_CONTAINER_PORT", published)

    assert neighbours(tmp_path / "route").has(address) is is_refused
