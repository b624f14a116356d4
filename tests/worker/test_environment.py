"""What a job's programs see of the worker's environment and secrets: nothing."""

import json
from pathlib import Path

import pytest

from core.config import broker_url, data_dir
from core.errors import UserError
from worker.environment import PASS_VARIABLE, job_environment
from worker.main import _broker_file, _parser
from worker.settings import VARIABLE, WorkerSettings, celery_environment

NEEDED = {
    "PATH": "/bin",
    "HOME": "/home/a",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
    "CUDA_VISIBLE_DEVICES": "GPU-1",
    "TORCH_CUDA_ARCH_LIST": "9.0",
    "NCCL_DEBUG": "WARN",
    "OMP_NUM_THREADS": "8",
    "HF_HOME": "/models",
    "PYTHONPATH": "/app",
    "WARPBOARD_ALLOW_COMMANDS": "/opt/app/bench",
}
SECRET = {
    VARIABLE: json.dumps({"broker_url": "redis://:pw@h/0", "token_file": "/t"}),
    "WARPBOARD_BROKER": "redis://:pw@h/0",
    "WARPBOARD_BROKER_FILE": "/secrets/broker.url",
    "WARPBOARD_TOKEN_FILE": "/token",
    "WARPBOARD_DASHBOARD": "http://h",
    "HF_TOKEN": "hf_x",
    "TORCH_API_KEY": "x",
    "NV_ACCESS_KEY": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "DATABASE_URL": "x",
    "https_proxy": "http://u:p@h",
    "SSH_AUTH_SOCK": "/s",
}


def test_job_of_a_worker_sees_what_it_needs_and_nothing_else() -> None:
    assert job_environment({**NEEDED, **SECRET}) == NEEDED


def test_operator_can_pass_more_but_never_the_workers_own() -> None:
    source = {**SECRET, PASS_VARIABLE: "HF_TOKEN, WARPBOARD_BROKER," + VARIABLE}

    assert job_environment(source) == {"HF_TOKEN": "hf_x"}


def test_own_shell_keeps_its_environment_but_for_queue_and_token() -> None:
    source = {**NEEDED, **{k: v for k, v in SECRET.items() if k != VARIABLE}}

    found = job_environment(source)

    assert found.keys() == source.keys() - {
        "WARPBOARD_BROKER",
        "WARPBOARD_BROKER_FILE",
        "WARPBOARD_TOKEN_FILE",
    }


def test_broker_is_read_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "broker.url"
    path.write_text("redis://:pw@h:6379/0\n")
    monkeypatch.delenv("WARPBOARD_BROKER", raising=False)
    monkeypatch.setenv("WARPBOARD_BROKER_FILE", str(path))

    assert broker_url(data_dir(tmp_path)) == "redis://:pw@h:6379/0"
    path.unlink()
    with pytest.raises(UserError, match=r"broker\.url"):
        broker_url(data_dir(tmp_path))


def test_password_from_a_file_is_in_no_environment(tmp_path: Path) -> None:
    path = tmp_path / "broker.url"
    path.write_text("redis://:pw-in-file@h:6379/0\n")
    settings = WorkerSettings(
        worker_id="w",
        dashboard_url="http://h",
        token_file="/t",
        broker_url="",
        broker_file=str(path),
        data_root=str(tmp_path),
        model="cpu",
    )

    assert settings.broker == "redis://:pw-in-file@h:6379/0"
    assert "pw-in-file" not in json.dumps(celery_environment(settings))


def test_password_on_the_command_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--broker-file"):
        _broker_file(_parser().parse_args(["--broker", "redis://:pw@h:6379/0"]))
