"""A malformed manifest is refused by the field that is wrong, quickly, and never by a traceback."""

import time

import pytest

from captures.contents import unique_name
from captures.manifest import MAX_MANIFEST_BYTES, check_manifest, is_plain_name, load_manifest
from core.errors import CaptureError
from core.spec import JobSpec

WRONG = {
    "pass": ["clean"],
    "process": 10**30,
    "status": {"done": 1},
    "note": "\ud800",
    "notes": {"a": {"\udfff": 1}},
    "clocks": {"a\0b": {"c": 1}},
    "duration_s": float("nan"),
    "captures": [{"file": "a", "kind": "log", "sha256": "0", "bytes": -1}],
    "result": {"samples_ns": [1.5]},
}
WRONG_CLOCKS = (
    {"before": [1]},
    {"before": {"power_w": "much"}},
    {"during": 5},
    {"during": {"sm_clock_mhz": 5}},
    {"during": {"sm_clock_mhz": {"min": 1, "median": "$$x$$", "max": 2}}},
    {"during": {"sm_clock_mhz": {"min": 1, "max": 2}}},
    {"during": {"throttle_reasons": 7}},
    {"during": {"throttle_reasons": [{}]}},
)
WRONG_PHASES = ("x", 5, {"forward": "x"}, {"forward": ["x"]}, {"forward": [[]]}, {"forward": [-1]})
WRONG_PARAMS = (
    *({"memory_cap_gib": v} for v in ("lots", True, 1e308, [])),
    *({"gpus": v} for v in ("many", False, 2**60)),
    {"own": {"a": 1}},
    {"own": float("inf")},
)


def manifest():
    """Return the smallest manifest that is right, a new one each time."""
    entry = {"pass": "clean", "status": "ok", "captures": [], "result": {"samples_ns": [1, 2]}}
    job = JobSpec(workload="decode", params={}).as_dict()
    return {"schema_version": 1, "job": job, "status": "done", "passes": [entry]}


def test_the_smallest_manifest_is_right():
    assert check_manifest(manifest()) == manifest()


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(("field", "value"), WRONG.items(), ids=WRONG)
def test_a_wrong_value_in_a_pass_is_named(field, value):
    document = manifest()
    document["passes"][0][field] = value
    if field == "status":
        document["status"] = value
    with pytest.raises(CaptureError):
        check_manifest(document)


@pytest.mark.parametrize("clocks", WRONG_CLOCKS)
def test_wrong_clocks_are_named(clocks):
    document = manifest()
    document["passes"][0]["clocks"] = clocks
    with pytest.raises(CaptureError, match="clocks"):
        check_manifest(document)


@pytest.mark.parametrize("phases", WRONG_PHASES)
def test_wrong_times_of_phases_are_named(phases):
    with pytest.raises(CaptureError, match="phase_samples_ns"):
        check_manifest(with_result(phase_samples_ns=phases))


@pytest.mark.parametrize("params", WRONG_PARAMS)
def test_params_that_no_job_can_have_are_named(params):
    document = manifest()
    document["job"]["params"] = params
    with pytest.raises(CaptureError, match=next(iter(params))):
        check_manifest(document)


def with_capture(**fields):
    document = manifest()
    capture = {"file": "a", "kind": "log", "sha256": "0", "bytes": 1}
    document["passes"][0]["captures"] = [capture | fields]
    return document


def with_result(**fields):
    document = manifest()
    document["passes"][0]["result"] |= fields
    return document


def with_pass(**fields):
    document = manifest()
    document["passes"][0] |= fields
    return document


def with_job(**fields):
    return {**manifest(), "job": manifest()["job"] | fields}


def with_two_captures_of_one_name():
    document = with_capture()
    document["passes"].append({**document["passes"][0], "pass": "nsys"})
    return document


WRONG_PLACES = {
    "error": {**manifest(), "error": 5},
    "run_id": {**manifest(), "run_id": ["x"]},
    "worker_id": {**manifest(), "worker_id": 7},
    "started_at": {**manifest(), "started_at": "yesterday"},
    "finished_at": {**manifest(), "finished_at": {}},
    "oom.requested_bytes": {**manifest(), "oom": {"requested_bytes": "x"}},
    r"passes\[0\].process": with_pass(process=-1),
    r"passes\[0\].outcome": with_pass(outcome={}),
    r"passes\[0\].clocks": with_pass(clocks=[1]),
    r"passes\[0\].command": with_pass(command=5),
    r"passes\[0\].duration_s": with_pass(duration_s="long"),
    "result.cost.flops": with_result(cost={"flops": "x"}),
    "result.cost.num_tokens": with_result(cost={"num_tokens": -1}),
    "result.memory.peak_allocated_bytes": with_result(memory={"peak_allocated_bytes": 1.5}),
    r"metrics\[0\].unit": with_result(metrics=[{"name": "x", "value": 1, "unit": 5}]),
    "private_removed": with_capture(private_removed=[1, None]),
    r"captures\[0\].tool": with_capture(tool=[]),
    r"passes\[1\].captures\[0\].file": with_two_captures_of_one_name(),
    "job.workload": with_job(workload=5),
    "job.gpu": with_job(gpu="x" * 1_000_000),
    "job.params": with_job(params=[1]),
    "job.params.settings": with_job(workload="command", params={"settings": "LD_PRELOAD=x"}),
}


@pytest.mark.parametrize(("place", "document"), WRONG_PLACES.items(), ids=WRONG_PLACES)
def test_what_a_page_or_a_table_could_not_take_is_refused_by_its_place(place, document):
    with pytest.raises(CaptureError, match=place):
        check_manifest(document)


def test_a_deep_value_is_refused():
    with pytest.raises(CaptureError, match="nested too deeply"):
        check_manifest({**manifest(), "extra": deep(900)})


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '"\\ud800"', "1e999", "NaN", "{"]
)
def test_text_that_is_no_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CaptureError):
        load_manifest(tmp_path)


def test_a_manifest_of_60_mb_is_refused_at_once(tmp_path):
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(60 << 20)
    started = time.process_time()
    with pytest.raises(CaptureError, match="larger than"):
        load_manifest(tmp_path)
    assert time.process_time() - started < 0.5


def test_the_largest_manifest_is_checked_in_a_second_or_two():
    document = manifest()
    num_samples = MAX_MANIFEST_BYTES // 10
    document["passes"][0]["result"] = {"samples_ns": [123_456_789] * num_samples}
    started = time.process_time()
    check_manifest(document)
    assert time.process_time() - started < 4


@pytest.mark.parametrize(
    "name",
    [
        "a\0b.json",
        "x" * 300 + ".json",
        "\U0001f600" * 200 + ".csv",
        "../../etc/passwd",
        "\ud800.json",
    ],
)
def test_any_name_becomes_one_that_a_file_can_have(tmp_path, name):
    plain = unique_name(name, ())
    (tmp_path / plain).touch()
    assert is_plain_name(plain)
    assert [p.name for p in tmp_path.iterdir()] == [plain]


def test_the_end_of_a_long_name_stays():
    assert unique_name("x" * 300 + ".json.gz", ()).endswith(".json.gz")
    assert unique_name("a.json", ("a.json",)) == "a-2.json"
