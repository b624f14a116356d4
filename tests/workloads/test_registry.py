"""Every workload describes itself, without torch, and a broken one does not hide the others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.config import ROOT
from core.spec import NUMBERS
from workloads import registry
from workloads.registry import (
    cost,
    estimate_memory_bytes,
    load_workloads,
    parse_params,
)

NAMES = (
    "allreduce",
    "attention",
    "command",
    "decode",
    "gemm",
    "generate",
    "moe_routing",
    "prefill",
    "transformer",
)
COSTED = tuple(name for name in NAMES if name != "command")


def test_all_workloads_are_found_and_none_is_broken():
    found = load_workloads()

    assert tuple(found) == NAMES
    assert [spec.error for spec in found.values()] == [""] * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_workload_names_its_source_in_its_docstring(name):
    module = sys.modules[f"workloads.{name}"]

    assert load_workloads()[name].source in module.__doc__
    assert load_workloads()[name].source.startswith("https://")


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_a_doc_and_a_default_within_its_limits(name):
    for f in load_workloads()[name].fields:
        assert f.doc
        assert not f.choices or f.default in f.choices
        assert not f.choices or f.smallest is None or f.smallest in f.choices
        assert f.minimum is None or f.default >= f.minimum


def test_the_params_that_must_be_numbers_are_those_that_workloads_declare_so():
    fields = [f for spec in load_workloads().values() for f in spec.fields]

    assert {f.name for f in fields if f.kind in ("int", "float")} == NUMBERS


@pytest.mark.parametrize("name", COSTED)
@pytest.mark.parametrize("on_cpu", (True, False))
def test_cost_and_memory_are_positive_at_the_defaults(name, on_cpu):
    params = parse_params(name, {}, gpu_is_cpu=on_cpu)

    work = cost(name, params)

    assert work.flops > 0 and work.bytes > 0
    assert (work.num_tokens is None) == (name == "allreduce") and work.num_tokens != 0
    assert estimate_memory_bytes(name, params) > 0


def test_cost_of_a_foreign_program_is_unknown_not_zero():
    assert cost("command", {}) is None
    assert estimate_memory_bytes("command", {}) is None


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_parses_and_keeps_its_name(name):
    for preset in load_workloads()[name].all_presets:
        assert parse_params(name, {"preset": preset})["preset"] == preset


def test_listing_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = sys.modules['numpy'] = None;"
        "from workloads.registry import load_workloads, parse_params;"
        "print([s.error for s in load_workloads().values()], parse_params('decode', {}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str([""] * len(NAMES)))


def test_list_prints_one_json_document():
    done = subprocess.run(
        [sys.executable, "-m", "workloads", "--list"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    listed = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert tuple(listed) == NAMES
    assert "llama-7b-layer" in listed["decode"]["presets"]


@pytest.fixture
def broken_workloads(tmp_path: Path, monkeypatch):
    (tmp_path / "raises_at_import.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "named_otherwise.py").write_text(
        "from workloads.spec import WorkloadSpec\n"
        "WORKLOAD = WorkloadSpec(name='other', title='', about='')\n"
    )
    monkeypatch.setattr("workloads.__path__", [*registry.workloads.__path__, str(tmp_path)])
    load_workloads.cache_clear()
    yield
    load_workloads.cache_clear()
    sys.modules.pop("workloads.named_otherwise", None)


def test_broken_workload_is_listed_with_its_error(broken_workloads):
    found = load_workloads()

    assert "nothing_of_that_name" in found["raises_at_import"].error
    assert "must be the file's name" in found["named_otherwise"].error
    assert found["decode"].error == ""
