"""Answers made beforehand load the example runs as reading them does, and only where they fit."""

import hashlib
import json
import lzma
import re
import sqlite3
import tarfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from pyarrow import parquet

from analysis.transfer import write_run
from app.cli.main import main
from app.demo import answers, load
from app.demo.load import load_demo, read_answers, unpacked
from captures.contents import content_hash
from core.config import DataDir
from core.errors import CaptureError
from tests.app.conftest import Cli

OF_THE_LOAD = {"id", "run_id", "capture_id", "spans_path", "created_at", "finished_at", "at"}
OF_THE_LOAD |= {"probed_at", "applied_at", "revision", "token"}
"""Columns that name a run or say when it was loaded."""
CHOSEN = (
    "decode 2 layers, eager",
    "decode 2 layers, CUDA graph traced as a whole",
    "transformer training step, bf16, PyTorch trace",
    "transformer training step, fp32, memory",
    "decode 4 layers, eager, context 512",
    "H200: decode 2 layers, max-autotune",
)
"""One of each format, of latencies measured by hand, and a bundle."""


def contents(data: DataDir) -> dict[str, Any]:
    """Return all that a data directory holds, under the names of its runs."""
    found: dict[str, Any] = {}
    with sqlite3.connect(f"file:{data.db_path}?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        names = dict(tuple(row) for row in db.execute("SELECT id, name FROM runs"))
        owners = dict(tuple(row) for row in db.execute("SELECT id, run_id FROM captures"))
        for (table,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            rows = [dict(row) for row in db.execute(f"SELECT * FROM {table}")]
            for row in rows:
                run_id = row.get("run_id") or owners.get(row.get("capture_id"))
                key = f"{table} of {names.get(run_id or row.get('id'), 'all')}"
                plain = {k: v for k, v in row.items() if k not in OF_THE_LOAD}
                found.setdefault(key, []).append(plain)
    for run_id, name in names.items():
        for path in sorted((data.captures / run_id).iterdir()):
            found[f"{name}: {path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((data.spans / run_id).glob("*")):
            found[f"{name}: spans {path.name}"] = parquet.read_table(path)
    return found


SMALL = (CHOSEN[1], CHOSEN[4])


@pytest.fixture(scope="module")
def our_answers(example_data: Path) -> dict[str, bytes]:
    """The line of the file of answers by the name of its example; under "" the version."""
    version, _, *lines = lzma.decompress(load.ANSWERS.read_bytes()).splitlines()
    with sqlite3.connect(example_data / "warpboard.db") as db:
        names = dict(db.execute("SELECT content_hash, name FROM runs").fetchall())
    return {
        "": version,
        **{names[json.loads(line.partition(b"\t")[0])["content_hash"]]: line for line in lines},
    }


LoadFrom = Callable[[Sequence[str]], None]


@pytest.fixture
def load_from(
    tmp_path: Path,
    example_captures: Path,
    our_answers: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> LoadFrom:
    """Write a folder with some of the examples and our answers to them, and load from there."""
    folder = tmp_path / "examples"
    text, _, _ = (load.FOLDER / "demo.toml").read_text(encoding="utf-8").partition("[[archive]]")
    _, *runs = text.split("[[run]]\n")

    def chosen(names: Sequence[str]) -> None:
        (folder / "data").mkdir(parents=True)
        mine = [run for run in runs if run.startswith(tuple(f'name = "{n}"\n' for n in names))]
        assert len(mine) == len(names)
        (folder / "demo.toml").write_text("".join(f"[[run]]\n{run}" for run in mine))
        with tarfile.open(folder / "data" / load.CAPTURES, "w:xz", preset=0) as archive:
            for path in sorted(set(re.findall(r'"([^"\n]+)"', "".join(mine)))):
                if (example_captures / path).exists():
                    archive.add(example_captures / path, path)
        monkeypatch.setattr(load, "FOLDER", folder)
        monkeypatch.setattr(load, "DATA", folder / "data")
        monkeypatch.setattr(load, "ANSWERS", folder / "data" / load.ANSWERS.name)
        write_answers([our_answers[""], b"{}", *(our_answers[name] for name in names)])

    return chosen


@pytest.fixture
def two(load_from: LoadFrom) -> None:
    """Load two small examples alone, a capture and latencies."""
    load_from(SMALL)


def write_answers(lines: Sequence[bytes]) -> None:
    load.ANSWERS.write_bytes(lzma.compress(b"\n".join(lines), preset=0))


Change = Callable[[bytes, bytes], tuple[bytes, bytes]]


def change_answers(change: Change, version: bytes | None = None) -> None:
    """Write each answer (what it is to, document) otherwise."""
    known, archives, *lines = lzma.decompress(load.ANSWERS.read_bytes()).splitlines()
    changed = [b"\t".join(change(*line.split(b"\t", 1))) for line in lines]
    write_answers([version or known, archives, *changed])


@pytest.fixture
def num_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return what says how many runs were read whole so far."""
    count = []

    def counted(*args: Any) -> None:
        count.append(1)
        write_run(*args)

    monkeypatch.setattr("analysis.read_job.write_run", counted)
    return lambda: len(count)


def test_answers_give_the_rows_and_files_that_reading_gives(
    tmp_path: Path, load_from: LoadFrom, num_read: Callable[[], int]
) -> None:
    load_from(CHOSEN)
    answered, read = (DataDir(root=tmp_path / name) for name in ("answered", "read"))

    load_demo(answered, lambda name: None)
    of_answers = num_read()
    load.ANSWERS.unlink()
    load_demo(read, lambda name: None)

    assert (of_answers, num_read()) == (0, len(CHOSEN))
    assert contents(answered) == contents(read)
    assert not list(answered.uploads.iterdir())


def _of_other_files(head: bytes, document: bytes) -> tuple[bytes, bytes]:
    told = json.loads(head)
    return json.dumps(told | {"content_hash": told["content_hash"][::-1]}).encode(), document


def _of_another_form(head: bytes, document: bytes) -> tuple[bytes, bytes]:
    return head, document.replace(b'"summary"', b'"sum"')


def _the_same(head: bytes, document: bytes) -> tuple[bytes, bytes]:
    return head, document


@pytest.mark.parametrize(
    ("change", "version"),
    [(_of_other_files, None), (_of_another_form, None), (_the_same, b"1")],
    ids=["files", "form", "version"],
)
def test_an_answer_that_does_not_fit_is_not_used(
    two: None,
    data_dir: DataDir,
    num_read: Callable[[], int],
    change: Change,
    version: bytes | None,
) -> None:
    change_answers(change, version)

    loaded = load_demo(data_dir, lambda name: None)

    assert (num_read(), len(loaded)) == (len(SMALL), len(SMALL))


@pytest.mark.parametrize("content", [b"", b"no archive", None, lzma.compress(b"")])
def test_answers_that_are_cut_off_are_none(two: None, content: bytes | None) -> None:
    whole = load.ANSWERS.read_bytes()
    load.ANSWERS.write_bytes(whole[: len(whole) // 2] if content is None else content)

    assert read_answers() == load.Answers()


def test_with_rules_of_the_users_own_the_examples_are_read(
    two: None, data_dir: DataDir, num_read: Callable[[], int]
) -> None:
    data_dir.rules_path.write_text(
        '[[rule]]\nmatch = "gemv"\ncategory = "copy"\norigin = "triton"\n'
    )

    load_demo(data_dir, lambda name: None)

    assert num_read() == len(SMALL)


def test_a_load_that_was_interrupted_goes_on(two: None, data_dir: DataDir) -> None:
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_demo(data_dir, interrupt)
    assert not list(data_dir.uploads.iterdir())

    assert len({run.run_id for run in load_demo(data_dir, lambda name: None)}) == len(SMALL)


def test_examples_are_loaded_once(two: None, cli: Cli, data_dir: DataDir) -> None:
    first, again = (cli.json("demo")["runs"] for _ in range(2))

    assert [r["is_new"] for r in (*first, *again)] == [True, True, False, False]
    assert [r["run_id"] for r in again] == [r["run_id"] for r in first]
    assert cli.json("runs", "--filter", "source:demo")["total"] == len(first)


def test_an_example_that_was_deleted_is_loaded_again(
    two: None, data_dir: DataDir, num_read: Callable[[], int]
) -> None:
    first = load_demo(data_dir, lambda name: None)
    before = contents(data_dir)

    assert main(["--data", str(data_dir.root), "delete", first[0].run_id]) == 0
    again = load_demo(data_dir, lambda name: None)

    assert [run.is_new for run in again] == [True, False]
    assert (num_read(), contents(data_dir)) == (0, before)


def test_examples_with_private_fields_get_no_answer(two: None) -> None:
    with unpacked() as entries:
        entry = next(e for e in entries if e["name"] == SMALL[0])
        with closing(sqlite3.connect(entry["files"][0])) as db, db:
            db.execute(
                "INSERT INTO TARGET_INFO_SYSTEM_ENV (name, value) VALUES ('Hostname', 'node7')"
            )

        with pytest.raises(CaptureError, match="holds private fields"):
            list(answers.made([entry]))


def test_answers_are_made_again_as_they_were(two: None, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl.xz"

    assert answers.write(again) == len(SMALL)

    kept, made = (lzma.decompress(p.read_bytes()).splitlines() for p in (load.ANSWERS, again))
    assert set(made) <= set(kept)


def test_a_wrong_number_in_an_answer_is_found(two: None) -> None:
    def wrong(head: bytes, document: bytes) -> tuple[bytes, bytes]:
        return head, document.replace(b'"status": "done"', b'"status": "oom"')

    change_answers(wrong)

    with unpacked() as entries:
        found = answers.differences(e for e in entries if e["name"] == SMALL[0])

    assert found == [f"{SMALL[0]}: data.status is oom in the answers, and done read"]


def test_every_example_has_an_answer(example_data: Path) -> None:
    with sqlite3.connect(example_data / "warpboard.db") as db:
        hashes = {sha256 for (sha256,) in db.execute("SELECT content_hash FROM runs")}

    assert set(read_answers().by_hash) == hashes


ARCHIVE = "some.tar.xz"


@pytest.fixture
def bundles(load_from: LoadFrom, tmp_path: Path) -> Path:
    """Two bundles as the only examples, of an archive, with answers; their folder is given."""
    folder = tmp_path / "bundles"
    with tarfile.open(load.DATA / "ranks-2xh200.tar.xz") as archive:
        for name in ("ddp-large-strong-1-gpu", "ddp-large-strong-2-gpus"):
            archive.extract(f"{name}/manifest.json", folder, filter="data")
    load_from(())
    with (load.FOLDER / "demo.toml").open("a") as listing:
        listing.write(f'[[archive]]\nfile = "{ARCHIVE}"\nprefix = "A: "\ntags = []\nnotes = ""\n')
    pack(folder)
    answers.write(load.ANSWERS)
    return folder


def pack(folder: Path, preset: Literal[0, 1] = 0) -> None:
    with tarfile.open(load.DATA / ARCHIVE, "w:xz", preset=preset) as archive:
        for bundle in sorted(folder.iterdir()):
            archive.add(bundle, bundle.name)


def measured_again(folder: Path) -> None:
    """Have the first bundle of the archive hold another run of the same job."""
    path = min(folder.iterdir()) / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"started_at": "2026-12-01T00:00:00Z"}) + "\n")
    pack(folder)


@pytest.fixture
def num_hashed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return what says how often the contents of an example were looked at so far."""
    count = []

    def counted(paths: Sequence[Path]) -> str | None:
        count.append(1)
        return content_hash(paths)

    monkeypatch.setattr(load, "content_hash", counted)
    return lambda: len(count)


def test_bundles_of_an_archive_that_was_answered_are_not_looked_into(
    bundles: Path,
    tmp_path: Path,
    num_read: Callable[[], int],
    num_hashed: Callable[[], int],
) -> None:
    answered, read = (DataDir(root=tmp_path / name) for name in ("answered", "read"))

    load_demo(answered, lambda name: None)

    assert (num_read(), num_hashed()) == (0, 0)
    load.ANSWERS.unlink()
    load_demo(read, lambda name: None)
    assert contents(answered) == contents(read)


def test_an_archive_that_was_packed_again_is_answered_by_its_contents(
    bundles: Path, data_dir: DataDir, num_read: Callable[[], int], num_hashed: Callable[[], int]
) -> None:
    pack(bundles, preset=1)

    load_demo(data_dir, lambda name: None)

    assert (num_read(), num_hashed()) == (0, 2)


def test_a_bundle_that_changed_in_an_archive_is_read(
    bundles: Path, data_dir: DataDir, num_read: Callable[[], int]
) -> None:
    measured_again(bundles)

    loaded = load_demo(data_dir, lambda name: None)

    assert (num_read(), [run.is_new for run in loaded]) == (1, [True, True])


def test_an_archive_whose_runs_are_here_is_not_unpacked(
    bundles: Path, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_demo(data_dir, lambda name: None)
    names: list[str] = []
    whole = load.unpack

    def noted(name: str, scratch: Path) -> Path:
        names.append(name)
        return whole(name, scratch)

    monkeypatch.setattr(load, "unpack", noted)
    again = load_demo(data_dir, lambda name: None)

    assert names == [load.CAPTURES]
    assert [run.run_id for run in again] == [run.run_id for run in first]


def test_an_example_of_an_older_version_stays_and_is_not_there_twice(
    bundles: Path, cli: Cli, data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    first = load_demo(data_dir, lambda name: None)
    measured_again(bundles)

    again = load_demo(data_dir, lambda name: None)

    assert [run.run_id for run in again] == [run.run_id for run in first]
    assert [w.code for w in again[0].warnings if w.code == load.OLDER] == [load.OLDER]
    assert not any(w.code == load.OLDER for w in again[1].warnings)
    assert cli.json("runs", "--filter", "source:demo")["total"] == 2
    capsys.readouterr()
    assert main(["--data", str(data_dir.root), "demo"]) == 0
    assert f"warpboard delete {first[0].run_id} && warpboard demo" in capsys.readouterr().out


def test_an_older_example_that_was_deleted_is_loaded_as_it_is_now(
    bundles: Path, data_dir: DataDir
) -> None:
    first = load_demo(data_dir, lambda name: None)
    measured_again(bundles)

    assert main(["--data", str(data_dir.root), "delete", first[0].run_id]) == 0
    again = load_demo(data_dir, lambda name: None)

    assert [run.is_new for run in again] == [True, False]
    assert not any(w.code == load.OLDER for run in again for w in run.warnings)
