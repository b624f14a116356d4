"""The container files as text; bench/containers.sh builds and runs them."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.checks import dashboard_checks
from app.cli.main import _parser as cli_parser
from app.keys import main as make_all_keys
from app.keys import make_keys
from core.config import ROOT, DataDir
from worker.main import _parser as worker_parser

VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def resolved(value: Any) -> Any:
    """Return a compose value with its variables' defaults, as when nothing is set."""
    if isinstance(value, dict):
        return {k: resolved(v) for k, v in value.items()}
    if isinstance(value, list):
        return [resolved(v) for v in value]
    if isinstance(value, str):
        return VARIABLE.sub(lambda m: m[3] if m[2] == "-" else "", value)
    return value


def services(name: str) -> dict[str, Any]:
    return dict(resolved(yaml.safe_load((ROOT / name).read_text()))["services"])


COMPOSE, WORKER = services("docker-compose.yml"), services("docker-compose.worker.yml")
ALL = [(f"{name}", s) for found in (COMPOSE, WORKER) for name, s in found.items()]
LASTING = [(name, s) for name, s in ALL if name != "keys"]
WORKERS = [s for name, s in ALL if name.startswith("worker")]
_FROM = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1:]
STAGES = dict(zip(("dashboard", "worker"), _FROM, strict=True))


def packages(lock: str) -> set[str]:
    text = (ROOT / "requirements" / lock).read_text()
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))


def test_compose_has_the_services_of_one_host() -> None:
    started = {name for name, service in COMPOSE.items() if "profiles" not in service}
    assert started == {"keys", "redis", "dashboard", "ingest", "worker"}
    assert set(WORKER) == {"worker", "worker-ncu"}


@pytest.mark.parametrize(("name", "service"), LASTING)
def test_every_service_restarts_reaps_and_is_watched(name: str, service: dict[str, Any]) -> None:
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True
    assert service["healthcheck"]["test"][0] == "CMD-SHELL"


def test_only_the_ncu_profile_has_capabilities_and_keeps_one() -> None:
    raised = [(s.get("profiles"), s["cap_add"], s["command"]) for _, s in ALL if "cap_add" in s]
    assert len(raised) == 2
    for profiles, capabilities, command in raised:
        assert profiles == ["ncu"]
        assert capabilities == ["SYS_ADMIN", "SETUID", "SETGID", "SETPCAP"]
        assert command[:3] == ["setpriv", "--reuid=10001", "--regid=10001"]
        assert "--bounding-set=-all,+sys_admin" in command
        assert command[-3:] == ["python3", "-m", "worker"]
    assert not [s for _, s in ALL if s.get("privileged")]


@pytest.mark.parametrize(("name", "service"), ALL)
def test_every_container_is_locked_down(name: str, service: dict[str, Any]) -> None:
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == ("0:0" if name == "worker-ncu" else "10001:10001")
    assert "mem_limit" in service


def test_every_exception_has_its_reason_beside_it() -> None:
    for name in ("docker-compose.yml", "docker-compose.worker.yml"):
        lines = (ROOT / name).read_text().splitlines()
        for mark in ("ipc: host", "ulimits:", "mem_limit: ${WARPBOARD_WORKER"):
            (at,) = [i for i, line in enumerate(lines) if mark in line]
            assert lines[at - 1].strip().startswith("# "), mark


def test_no_password_stands_in_a_command_or_an_environment() -> None:
    for name, service in ALL:
        text = str([service.get("command"), service.get("environment")]).lower()
        assert "requirepass" not in text, name
        assert "redis://" not in text, name
    assert "/secrets/redis.conf" in COMPOSE["redis"]["command"]


def test_workers_get_every_gpu_and_the_hosts_memory() -> None:
    for service in WORKERS:
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["count"], device["capabilities"]) == (
            "nvidia",
            "all",
            ["gpu"],
        )
        assert service["ipc"] == "host"
        assert "shm_size" not in service
        assert service["ulimits"] == {"memlock": -1, "stack": 64 * 2**20}


def test_nothing_is_open_to_the_network_by_default() -> None:
    ports = [port for _, service in ALL for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:8501:8501"]


def test_other_hosts_reach_redis_and_the_api_of_workers_but_no_page() -> None:
    text = (ROOT / "docker-compose.hosts.yml").read_text()
    wanted = {m[1] for m in VARIABLE.finditer(text) if m[2] == "?"}
    assert wanted == {"WARPBOARD_REDIS_PUBLISH", "WARPBOARD_WORKERS_PUBLISH"}
    assert "8501" not in text.replace("WARPBOARD_", "")
    assert COMPOSE["worker"]["environment"]["WARPBOARD_DASHBOARD"] == "http://dashboard:8502"


@pytest.mark.parametrize("variable", ["WARPBOARD_REDIS_PUBLISH", "WARPBOARD_WORKERS_PUBLISH"])
@pytest.mark.parametrize(
    ("place", "is_taken"),
    [
        ("10.0.0.5:6379", True),
        ("[fd00::5]:6379", True),
        ("0.0.0.0:6379", True),
        ("6379", False),
        (":6379", False),
        (" 6379", False),
        ("6379-6400", False),
        ("10.0.0.5", False),
        ("10.0.0.5:", False),
        ("10.0.0.999:6379", False),
        ("[]:6379", False),
        ("10.0.0.5:6379\n", False),
        ("10.0.0.5:0", False),
    ],
)
def test_a_port_for_workers_without_an_address_starts_nothing(
    variable: str,
    place: str,
    is_taken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hosts = yaml.safe_load((ROOT / "docker-compose.hosts.yml").read_text())["services"]
    monkeypatch.setenv(variable, place)

    assert make_all_keys([str(tmp_path)]) == (0 if is_taken else 2)

    assert (variable in capsys.readouterr().err) is not is_taken
    assert hosts["keys"]["environment"][variable] == f"${{{variable}}}"
    waits = COMPOSE["redis"]["depends_on"]["keys"]["condition"]
    assert waits == "service_completed_successfully"
    if not is_taken:
        (pages,) = (c for c in dashboard_checks(DataDir(root=tmp_path)) if c["name"] == "pages")
        assert not pages["is_ok"]
        assert variable in pages["found"]


def test_redis_keeps_what_it_was_told(tmp_path: Path) -> None:
    make_keys(tmp_path)
    assert "appendonly yes\n" in (tmp_path / "redis.conf").read_text()
    assert "redis:/data" in COMPOSE["redis"]["volumes"]


def test_two_workers_of_a_host_never_share_its_gpus() -> None:
    for found in (COMPOSE, WORKER):
        assert "--stand-by" in found["worker"]["command"]
        assert found["worker"]["depends_on"]["worker-ncu"]["required"] is False
        assert found["worker"]["volumes"] == found["worker-ncu"]["volumes"]


def test_commands_exist() -> None:
    dashboard = re.search(r'"app.cli", (.*)\]', STAGES["dashboard"])
    assert dashboard is not None
    words = re.findall(r'"([^"]+)"', dashboard[1])
    assert cli_parser("up").parse_args(words).dashboard_only is True
    for service in WORKERS:
        words = service.get("command", ["python3", "-m", "worker"])
        words = words[words.index("worker") + 1 :]
        assert worker_parser().parse_args(words).gpu == "all"
    text = (ROOT / "Dockerfile").read_text() + (ROOT / "docker-compose.yml").read_text()
    modules = {m for m in re.findall(r'-m["\', ]+([a-z_.]+)', text) if m not in ("venv", "pip")}
    assert modules == {"app.cli", "app.ingest_worker", "app.keys", "worker", "worker.health"}
    assert all(importlib.util.find_spec(module) for module in modules)


def test_environment_is_what_the_code_reads() -> None:
    sources = "".join(p.read_text() for room in ("core", "app", "worker") for p in _python(room))
    given = {name for _, s in ALL for name in s.get("environment", {}) if "WARPBOARD" in name}
    assert given >= {"WARPBOARD_BROKER_FILE", "WARPBOARD_DATA", "WARPBOARD_DASHBOARD"}
    assert [name for name in given if f'"{name}"' not in sources] == []


def _python(room: str) -> list[Path]:
    return list((ROOT / room).rglob("*.py"))


def test_images_hold_their_rooms_alone() -> None:
    copied = {
        stage: {line.split()[1] for line in text.splitlines() if line.startswith("COPY ")}
        for stage, text in STAGES.items()
    }
    assert all((ROOT / source).exists() for found in copied.values() for source in found)
    rooms = {"core", "captures", "workloads", "worker"}
    assert copied["worker"] == rooms | {"LICENSE", "requirements/worker.lock"}
    assert copied["dashboard"] > rooms | {"analysis", "db", "app"}


def test_locks_leave_torch_alone() -> None:
    heavy = {"torch", "triton", "numpy", "pandas", "streamlit"}
    assert packages("worker.lock") & heavy == set()
    assert packages("app.lock") & {"torch", "triton"} == set()


def test_worker_has_what_kombu_imports_for_redis() -> None:
    assert packages("worker.lock") >= {"celery", "redis", "packaging", "httpx"}


@pytest.mark.parametrize("stage", STAGES)
def test_images_run_without_root(stage: str) -> None:
    assert "\nUSER warpboard\n" in STAGES[stage]


def test_build_context_leaves_data_and_secrets_out() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert set(ignored) >= {".git", ".venv*", "data", "*.token", ".streamlit/secrets.toml"}
