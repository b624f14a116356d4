"""What is known of a GPU stays known: newer facts replace older ones, missing ones replace none."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from app.imports import import_paths
from core import gpus
from core.config import DataDir
from core.gpus import imported_gpu
from db.fetch import run_view
from db.status import gpu_peaks
from db.workers import store_gpu, store_peaks
from tests.analysis.readers.nsys_files import edited
from tests.conftest import H100

KEY = "import/NVIDIA H200"
MEASURED = {
    "model": "NVIDIA H200",
    "driver": "580.1",
    "measured_at": "2026-11-28T08:00:00Z",
    "noise_floor_frac": 0.34,
    "noise_floors": {"gpu_bound": 0.02, "launch_bound": 0.34},
    "peaks": {"copy_bytes_per_s": {"value": 4.2e12, "measured_at": "2026-11-28T08:00:00Z"}},
}


@pytest.fixture
def measured(db: Database) -> Database:
    store_gpu(db, KEY, None, MEASURED)
    return db


def facts(db: Database) -> dict[str, Any]:
    row = next(db.query("SELECT * FROM gpus WHERE id = ?", [KEY]))
    return row | json.loads(row.pop("info")) | {"peaks": gpu_peaks(db, KEY)}


def test_a_bundle_that_knows_less_wipes_nothing(measured: Database) -> None:
    before = facts(measured)

    store_gpu(measured, KEY, None, {"model": "NVIDIA H200", "num_sms": 132})

    assert facts(measured) == before | {"num_sms": 132}


def test_figures_measured_earlier_change_nothing(measured: Database) -> None:
    earlier = "2026-11-20T08:00:00Z"
    old = MEASURED | {
        "measured_at": earlier,
        "noise_floor_frac": 0.9,
        "noise_floors": {"gpu_bound": 0.9, "launch_bound": 0.9},
        "peaks": {"copy_bytes_per_s": {"value": 1e12, "measured_at": earlier}},
    }
    before = facts(measured)

    store_gpu(measured, KEY, None, old)

    assert facts(measured) == before


def test_figures_measured_later_replace_them(measured: Database) -> None:
    later = {"measured_at": "2026-11-28T09:00:00Z", "noise_floor_frac": 0.1}

    store_gpu(
        measured, KEY, None, {"model": "NVIDIA H200", "peaks": {"copy_bytes_per_s": 4.3e12}} | later
    )

    found = facts(measured)
    assert (found["noise_floor_frac"], found["measured_at"]) == (0.1, later["measured_at"])
    assert found["peaks"] == {"copy_bytes_per_s": 4.3e12}
    assert found["noise_floors"] == MEASURED["noise_floors"]


def test_a_worker_tells_how_its_gpu_is_now_and_measured_figures_stay(measured: Database) -> None:
    store_gpu(measured, KEY, "w1", {"model": "NVIDIA H200", "driver": "590.2"})

    found = facts(measured)
    assert (found["driver"], found["worker_id"]) == ("590.2", "w1")
    assert found["noise_floor_frac"] == 0.34


def test_a_run_keeps_the_peaks_it_was_judged_by(db: Database, data_dir: DataDir) -> None:
    run_id = import_paths(data_dir, [H100 / "nsys" / "decode_eager.sqlite"]).run_id
    info = {"peaks": {"copy_bytes_per_s": 3e12}}
    db.execute(
        "UPDATE runs SET info = json_patch(info, ?) WHERE id = ?", [json.dumps(info), run_id]
    )
    gpu = db.execute("SELECT gpu_id FROM runs WHERE id = ?", [run_id]).fetchone()[0]

    store_peaks(db, gpu, {"copy_bytes_per_s": 9e12, "gemm_bf16_flops_per_s": 1e15})

    assert run_view(db, data_dir, run_id).peaks == {"copy_bytes_per_s": 3e12}


NO_CARD = ["UPDATE TARGET_INFO_GPU SET uuid = NULL, busLocation = NULL"]


def gpu_of(db: Database, run_id: str) -> str:
    return str(db.execute("SELECT gpu_id FROM runs WHERE id = ?", [run_id]).fetchone()[0])


def test_facts_known_only_by_model_judge_no_other_run(
    db: Database, data_dir: DataDir, tmp_path: Path
) -> None:
    capture = edited("decode_eager.sqlite", tmp_path, NO_CARD)
    run_id = import_paths(data_dir, [capture]).run_id

    store_gpu(db, gpu_of(db, run_id), None, MEASURED)

    found = run_view(db, data_dir, run_id)
    assert (found.peaks, found.noise_floor_frac, found.noise_floors) == ({}, None, {})


def test_captures_of_one_card_share_its_facts_by_uuid(db: Database, data_dir: DataDir) -> None:
    """Both files hold one uuid; `decode_cuda_graph_node` holds another card's."""
    names = ("decode_eager", "train_bf16", "decode_cuda_graph_node")
    runs = [import_paths(data_dir, [H100 / "nsys" / f"{n}.sqlite"]).run_id for n in names]
    first, second, other = (gpu_of(db, run_id) for run_id in runs)

    store_gpu(db, first, None, MEASURED)

    assert first == second != other
    assert run_view(db, data_dir, runs[1]).noise_floor_frac == 0.34
    assert run_view(db, data_dir, runs[2]).noise_floor_frac is None


@pytest.mark.parametrize(
    ("ours", "theirs", "may_be"),
    [
        ({}, {}, True),
        ({"uuid": "D-1"}, {}, True),
        ({"uuid": "D-1"}, {"uuid": "D-2"}, False),
        ({"bus": "0000:57:00.0"}, {"bus": "0000:57:00.0"}, True),
        ({"bus": "0000:57:00.0"}, {"bus": "0000:58:00.0"}, False),
        ({"ordinal": 0}, {"ordinal": 1}, False),
        ({"ordinal": 0}, {"bus": "0000:57:00.0"}, True),
        ({"memory_bytes": 8_585_216_000}, {"memory_bytes": 17_175_150_592}, False),
        ({"memory_bytes": 85_017_493_504}, {"memory_bytes": 81_559 * 2**20}, True),
    ],
)
def test_cards_without_a_uuid_are_told_apart_by_what_files_say(ours, theirs, may_be) -> None:
    model = {"model": "NVIDIA GeForce RTX 4060 Ti"}
    keys = {imported_gpu(model | ours), imported_gpu(model | theirs)}

    assert gpus.may_be_one(ours, theirs) is may_be
    assert may_be or len(keys) == 2
