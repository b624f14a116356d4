"""Delivery of a bundle: resumed, checked, never lost, never sent to nobody."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.worker.dashboard import TOKEN, Dashboard
from worker import spool
from worker.client import DashboardAway, DashboardClient, version_complaint
from worker.execute import write_json


@pytest.fixture
def client(dashboard: Dashboard) -> DashboardClient:
    return DashboardClient(dashboard.url, TOKEN)


def sealed_bundle(folder: Path, data: bytes, run_id: str = "r1") -> Path:
    bundle = spool.open_bundle(folder, run_id)
    (bundle / "nsys-0.sqlite").write_bytes(data)
    capture = {
        "file": "nsys-0.sqlite",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    manifest = {"passes": [{"pass": "nsys", "captures": [capture]}], "warnings": []}
    write_json(bundle / "manifest.json", manifest)
    spool.seal(bundle, run_id)
    return bundle


def test_broken_upload_goes_on_where_it_stopped(
    tmp_path: Path, dashboard: Dashboard, client: DashboardClient
) -> None:
    data = os.urandom(3_000_000)
    dashboard.break_uploads_after = 1_000_000
    bundle = sealed_bundle(tmp_path, data)
    assert spool.deliver(bundle, client)
    assert list(dashboard.stored.values()) == [data]
    assert "r1" in dashboard.manifests
    assert not bundle.exists()


def test_absent_dashboard_leaves_the_bundle(
    tmp_path: Path, dashboard: Dashboard, client: DashboardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.client.RETRY_DELAYS_S", (0.0,))
    dashboard.is_away = True
    bundle = sealed_bundle(tmp_path, b"data")
    with pytest.raises(DashboardAway):
        spool.deliver(bundle, client)
    assert (bundle / "nsys-0.sqlite").read_bytes() == b"data"
    dashboard.is_away = False
    (bundle / spool.OWNER).unlink()
    assert spool.sweep(tmp_path, client) == 0
    assert "r1" in dashboard.manifests


def test_refused_capture_is_named_and_the_rest_arrives(
    tmp_path: Path, dashboard: Dashboard, client: DashboardClient
) -> None:
    dashboard.limit_bytes = 10
    spool.deliver(sealed_bundle(tmp_path, b"more than ten bytes"), client)
    manifest = dashboard.manifests["r1"]
    assert manifest["passes"][0]["captures"] == []
    assert manifest["warnings"][0]["code"] == "capture_too_large"


def test_bundle_that_a_live_process_makes_is_left_alone(
    tmp_path: Path, client: DashboardClient
) -> None:
    bundle = spool.open_bundle(tmp_path, "r1")
    assert spool.running_runs(tmp_path) == ["r1"]
    spool.sweep(tmp_path, client)
    assert bundle.exists()


def test_half_made_bundle_of_a_dead_process_is_dropped(
    tmp_path: Path, client: DashboardClient
) -> None:
    bundle = spool.open_bundle(tmp_path, "r1")
    (bundle / spool.OWNER).write_text("4194304999 1")
    assert spool.running_runs(tmp_path) == []
    spool.sweep(tmp_path, client)
    assert not bundle.exists()


def test_process_that_took_over_the_pid_is_no_owner(tmp_path: Path) -> None:
    bundle = spool.open_bundle(tmp_path, "r1")
    (bundle / spool.OWNER).write_text(f"{os.getpid()} 1")
    assert spool.running_runs(tmp_path) == []


def test_run_that_the_dashboard_does_not_take_is_kept_aside(
    tmp_path: Path, dashboard: Dashboard, client: DashboardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = sealed_bundle(tmp_path, b"data")
    manifest = json.loads((bundle / "manifest.json").read_text())
    monkeypatch.setattr(
        "tests.worker.dashboard._Handler.post_finish",
        lambda self, parts, body: (409, {"error": "attempt 1 was given up for 2"}),
    )
    assert spool.deliver(bundle, client)
    kept = tmp_path / "refused" / "r1"
    assert json.loads((kept / "manifest.json").read_text()) == manifest
    assert "attempt 1 was given up" in (kept / "reason.txt").read_text()


@pytest.mark.parametrize(
    ("theirs", "is_fatal"), [("0.1.0", None), ("0.9.3", False), ("2.0.0", True)]
)
def test_only_another_major_version_is_fatal(theirs: str, is_fatal: bool | None) -> None:
    complaint = version_complaint(theirs)
    assert (complaint[0] if complaint else None) is is_fatal
