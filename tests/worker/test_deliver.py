"""A profiled run that is sent to a dashboard elsewhere, by the standard library alone."""

import importlib.util
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from core.errors import RunFailedError, UserError
from worker.profile import deliver as module
from worker.profile.deliver import deliver, place_of_run, refuse_early

SHA = "ab" * 32


class Dashboard(BaseHTTPRequestHandler):
    """Takes a run as the API does; drops the first upload in the middle."""

    protocol_version = "HTTP/1.1"
    got: dict[str, bytes]
    asked: list[str]
    status = 201

    def answer(self, status, body=b"{}", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(f"{self.path} {self.headers['Authorization']}")
        self.got[self.path] = body
        reply = {"run_id": "r1", "attempt": 0} if self.status == 201 else {"error": "no room"}
        self.answer(self.status, json.dumps(reply).encode())

    def do_GET(self):
        self.answer(self.status, b'{"error": "unknown token"}')

    def do_HEAD(self):
        self.answer(404, Upload_Offset=str(len(self.got.get("file", b""))))

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if "file" not in self.got:
            self.got["file"] = data[:5]
            self.close_connection = True
            return
        self.asked.append(self.path)
        self.got["file"] += data
        self.answer(201)

    def log_message(self, *words):
        pass


@pytest.fixture
def dashboard():
    kind = type("One", (Dashboard,), {"got": {}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", kind
    server.shutdown()
    server.server_close()


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "trace-0.json.gz").write_bytes(b"0123456789")
    manifest = {
        "job": {"params": {"name": "train.py"}},
        "passes": [{"captures": [{"file": "trace-0.json.gz", "sha256": SHA}]}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "token").write_text("secret\n")
    return folder


def send(bundle, url):
    return deliver(bundle, out=None, url=url, token_file=bundle.parent / "token")


def test_upload_that_broke_off_goes_on_where_it_was(dashboard, bundle):
    url, kind = dashboard

    run_id = send(bundle, url)

    assert run_id == "r1"
    assert kind.got["file"] == b"0123456789"
    assert kind.asked[0] == "/api/v1/runs Bearer secret"
    assert kind.asked[1].endswith(f"/captures/{SHA}?file=trace-0.json.gz&offset=5")
    assert json.loads(kind.got["/api/v1/runs/r1/finish"])["attempt"] == 0


def test_run_that_cannot_be_sent_is_kept_and_the_place_is_named(dashboard, bundle, tmp_path):
    url, kind = dashboard
    kind.status = 507

    with pytest.raises(RunFailedError, match=r"507: no room\. The run is kept in .*bundle-kept"):
        send(bundle, url)

    assert (tmp_path / "bundle-kept" / "manifest.json").is_file()


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b"[]",
        b"not JSON",
        b'{"run_id": "../../\\u001b[2J", "attempt": 0}',
        b'{"run_id": {"a": 1}, "attempt": 0}',
        b"[" * 100_000,
        b" " * (40 << 20),
    ],
)
def test_run_is_kept_whatever_the_other_side_answers(
    dashboard, bundle, tmp_path, monkeypatch, capsys, answer
):
    url, kind = dashboard

    def answers(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, answer)

    monkeypatch.setattr(kind, "do_POST", answers)

    with pytest.raises(RunFailedError, match=r"The run is kept in .*bundle-kept"):
        send(bundle, url)

    assert (tmp_path / "bundle-kept" / "manifest.json").is_file()
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("offset", ["-5", "abc", "9" * 5000])
def test_an_offset_that_is_none_is_the_start(dashboard, bundle, monkeypatch, offset):
    url, kind = dashboard
    kind.got["file"] = b""
    monkeypatch.setattr(kind, "do_HEAD", lambda self: self.answer(404, Upload_Offset=offset))

    assert send(bundle, url) == "r1"

    assert kind.got["file"] == b"0123456789"


def test_run_is_kept_elsewhere_where_the_current_folder_takes_none(
    dashboard, bundle, tmp_path, monkeypatch
):
    url, kind = dashboard
    kind.status = 507
    gone = tmp_path / "gone"
    gone.mkdir()
    token = tmp_path / "token"
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(RunFailedError, match=r"507: no room\. The run is kept in .*bundle.*-kept"):
        deliver(bundle, out=None, url=url, token_file=token)

    (manifest,) = tmp_path.rglob("*-kept/manifest.json")
    assert manifest.is_file()


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", "sch\u00fcssel\u4e2d".encode(), b"a\x00b", b"a\x1bb", b"a" * 5000]
)
def test_token_that_no_header_can_hold_is_refused_early(bundle, tmp_path, content):
    (tmp_path / "odd").write_bytes(content)
    with pytest.raises(UserError, match="--token-file"):
        refuse_early(None, "http://127.0.0.1:1", tmp_path / "odd")


def test_token_file_that_is_a_pipe_is_refused_early(bundle, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="--token-file"):
        refuse_early(None, "http://127.0.0.1:1", tmp_path / "pipe")


@pytest.mark.parametrize(
    "url",
    [
        *("gpu.example.com", "ftp://gpu", "http://", "http://[::1", "http://gpu:99999"),
        *("http://gpu:x", "http://gpu/\u4e2d", "http://gpu/a b", "http://" + "a" * 70 + ".x"),
        *("http://user:password@gpu", "http://gpu/x?y=1", "http://gpu/#a", "http://g\x1bpu"),
    ],
)
def test_address_that_is_none_is_refused_early(bundle, url):
    with pytest.raises(UserError, match="--to"):
        refuse_early(None, url, bundle.parent / "token")


def test_missing_or_empty_token_is_refused_early(bundle, tmp_path):
    (tmp_path / "empty").touch()
    for path in (None, tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(UserError, match="token"):
            refuse_early(None, "http://localhost:1", path)


def test_token_that_the_dashboard_does_not_know_is_refused_before_anything_runs(dashboard, bundle):
    url, kind = dashboard
    refuse_early(None, url, bundle.parent / "token")

    kind.status = 401
    with pytest.raises(UserError, match="refused the token: unknown token"):
        refuse_early(None, url, bundle.parent / "token")


def test_dashboard_that_cannot_be_reached_is_refused_before_anything_runs(bundle):
    with pytest.raises(UserError, match=r"cannot be reached: .* with --out DIR"):
        refuse_early(None, "http://127.0.0.1:1", bundle.parent / "token")


def stored_by(monkeypatch, script):
    """Let a script stand in for the command that stores a bundle here."""
    monkeypatch.setattr(module, "_import_command", lambda folder: [sys.executable, "-c", script])


def test_run_that_is_stored_here_is_named_by_its_id(bundle, monkeypatch, capsys):
    stored_by(monkeypatch, """print('{"run_id": "r7", "warnings": [{"message": "odd"}]}')""")

    assert deliver(bundle, out=None, url=None, token_file=None) == "r7"

    assert capsys.readouterr().err.splitlines()[0] == "warpboard: import: odd"
    assert bundle.is_dir()


def test_run_that_cannot_be_stored_here_is_kept_and_the_place_is_named(
    bundle, monkeypatch, tmp_path
):
    stored_by(monkeypatch, "import sys; sys.exit(3)")

    with pytest.raises(RunFailedError, match=r"exit code 3\. The run is kept in .*bundle-kept"):
        deliver(bundle, out=None, url=None, token_file=None)

    assert (tmp_path / "bundle-kept" / "manifest.json").is_file()


def test_run_whose_delivery_is_stopped_is_kept_and_the_place_is_named(
    dashboard, bundle, monkeypatch, tmp_path, capsys
):
    url, _ = dashboard

    def stopped(*words, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.subprocess, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        deliver(bundle, out=None, url=None, token_file=None)
    kept = tmp_path / "bundle-kept"
    assert f"the run is kept in {kept}" in capsys.readouterr().err

    kept.rename(bundle)
    monkeypatch.setattr(module._Dashboard, "_upload", stopped)
    with pytest.raises(KeyboardInterrupt):
        send(bundle, url)
    assert (kept / "manifest.json").is_file()


def test_installation_that_only_profiles_leaves_the_run_in_a_folder_and_says_so_first(
    bundle, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(module, "_SCRIPT", tmp_path / "no clone")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    folder = place_of_run(None, None)

    assert folder.parent == tmp_path and folder.name.startswith("warpboard-run-")
    assert f"the run will be in {folder.name}/" in capsys.readouterr().err
    assert place_of_run(tmp_path / "own", None) == tmp_path / "own"
    assert place_of_run(None, "http://dashboard") is None
