"""A profiled run that is sent to a dashboard elsewhere, by the standard library alone."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from core.errors import RunFailedError, UserError
from worker.profile.deliver import deliver, refuse_early

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


@pytest.mark.parametrize("url", ["gpu.example.com", "ftp://gpu", "http://"])
def test_address_that_is_none_is_refused_early(bundle, url):
    with pytest.raises(UserError, match="--to"):
        refuse_early(None, url, bundle.parent / "token")


def test_missing_or_empty_token_is_refused_early(bundle, tmp_path):
    (tmp_path / "empty").touch()
    for path in (None, tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(UserError, match="token"):
            refuse_early(None, "http://localhost:1", path)
