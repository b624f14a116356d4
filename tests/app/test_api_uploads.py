"""Captures on their way in: resumed, limited, and never outside the data directory."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from app.api import uploads
from core.config import DataDir
from core.errors import UserError
from tests.app.api_steps import (
    TRACE,
    TRACE_SHA256,
    MakeRun,
    claimed,
    upload_path,
)


def test_upload_goes_on_where_it_broke_off(api: httpx.Client, make_run: MakeRun) -> None:
    run_id, data = claimed(api, make_run), TRACE.read_bytes()
    where = upload_path(run_id)

    assert api.head(where).headers["upload-offset"] == "0"
    part = api.put(where, params={"file": "t.gz", "offset": 0}, content=data[:1000])
    wrong = api.put(where, params={"file": "t.gz", "offset": 5}, content=data[5:])
    rest = api.put(where, params={"file": "t.gz", "offset": 1000}, content=data[1000:])

    assert (part.status_code, wrong.status_code, rest.status_code) == (202, 409, 201)
    assert wrong.json()["expected"] == 1000
    assert api.head(where).status_code == 200


def test_upload_with_wrong_contents_begins_again(api: httpx.Client, make_run: MakeRun) -> None:
    where = upload_path(claimed(api, make_run))
    api.put(where, params={"file": "t.gz", "offset": 0}, content=b"wrong")

    again = api.put(where, params={"file": "t.gz", "offset": 5}, content=b"")

    assert again.status_code == 409
    assert api.head(where).headers["upload-offset"] == "0"


def test_nothing_is_added_to_a_capture_that_another_upload_has_just_ended(
    api: httpx.Client, make_run: MakeRun, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, data = claimed(api, make_run), TRACE.read_bytes()
    api.put(upload_path(run_id), params={"file": "t.gz", "offset": 0}, content=data[:1000])
    whole, lock = data_dir.uploads / run_id / TRACE_SHA256, uploads._lock

    def late(file: IO[bytes], partial: Path) -> None:
        partial.write_bytes(data)
        partial.replace(whole)
        lock(file, partial)

    monkeypatch.setattr(uploads, "_lock", late)
    params: dict[str, Any] = {"file": "t.gz", "offset": len(data)}
    answer = api.put(upload_path(run_id), params=params, content=b"junk")

    assert answer.status_code == 409
    assert whole.read_bytes() == data


def test_uploads_of_one_capture_at_once_make_one(
    api: httpx.Client, make_run: MakeRun, data_dir: DataDir
) -> None:
    run_id, data = claimed(api, make_run), TRACE.read_bytes()
    start = threading.Barrier(8)

    def put(_: int) -> int:
        start.wait()
        params: dict[str, Any] = {"file": "t.gz", "offset": 0}
        return api.put(upload_path(run_id), params=params, content=data).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = set(pool.map(put, range(8)))

    assert {201} <= codes <= {201, 409}
    assert (data_dir.uploads / run_id / TRACE_SHA256).read_bytes() == data


def test_upload_over_the_limit_is_refused(
    api: httpx.Client, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_MAX_CAPTURE_BYTES", "1000")

    where = upload_path(claimed(api, make_run))

    answer = api.put(where, params={"file": "t.gz", "offset": 0}, content=TRACE.read_bytes())

    assert answer.status_code == 413
    assert "1000" in answer.json()["error"]


@pytest.mark.parametrize(
    ("run_id", "sha256", "name"),
    [
        ("..", TRACE_SHA256, "t.gz"),
        ("%2e%2e%2fetc", TRACE_SHA256, "t.gz"),
        (None, "passwd", "t.gz"),
        (None, TRACE_SHA256, "../t.gz"),
        (None, TRACE_SHA256, "/etc/passwd"),
        (None, TRACE_SHA256, ""),
        ("r000000000000", TRACE_SHA256, "t.gz"),
    ],
)
def test_no_upload_leaves_the_data_directory(
    api: httpx.Client,
    data_dir: DataDir,
    make_run: MakeRun,
    run_id: str | None,
    sha256: str,
    name: str,
) -> None:
    where = f"/runs/{run_id or make_run()}/captures/{sha256}"

    answer = api.put(where, params={"file": name, "offset": 0}, content=b"x")

    assert answer.status_code in (400, 404)
    assert list(data_dir.uploads.rglob("*")) == []


def test_largest_capture_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uploads.max_capture_bytes() == uploads.DEFAULT_MAX_CAPTURE_BYTES
    monkeypatch.setenv("WARPBOARD_MAX_CAPTURE_BYTES", "7")
    assert uploads.max_capture_bytes() == 7
    for odd in ("abc", "-1", "0", "nan", "1_0", "9" * 30, "\u0663"):
        monkeypatch.setenv("WARPBOARD_MAX_CAPTURE_BYTES", odd)
        with pytest.raises(UserError, match="WARPBOARD_MAX_CAPTURE_BYTES"):
            uploads.max_capture_bytes()


def test_upload_that_broke_at_its_last_byte_and_went_on_with_another_is_mended(
    api: httpx.Client, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id, data = claimed(api, make_run), TRACE.read_bytes()
    where, end = upload_path(run_id), len(TRACE.read_bytes())

    def put(offset: int, content: bytes) -> int:
        found = api.put(where, params={"file": "t.gz", "offset": offset}, content=content)
        return found.status_code

    assert put(0, data[:-1]) == 202
    assert put(end - 1, bytes([data[-1] ^ 1])) == 202
    assert api.head(where).status_code == 404
    assert put(end, b"") == 409
    assert put(0, data) == 201
    assert put(0, b"something else") == 201  # it is here already: nothing is taken any more
    assert (data_dir.uploads / run_id / TRACE_SHA256).read_bytes() == data
