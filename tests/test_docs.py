"""README and docs hold what they say: links, commands, names, figures, examples."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from analysis.compare import verdict as verdicts
from analysis.compare.statistics import MIN_PROCESSES
from analysis.idle import IDLE_FRAC
from analysis.studies import Study, list_studies
from analysis.verdict import OPAQUE_FRAC
from app.api.auth import MAX_FAILURES
from app.api.docs import _OPERATIONS
from app.api.state import EMBEDDED_SILENCE_S, REMOTE_SILENCE_S
from app.api.uploads import DEFAULT_MAX_CAPTURE_BYTES
from app.cli.main import COMMANDS, main
from core.config import ROOT, DataDir
from core.spec import JobSpec
from docs.generate import DOCS, generated, parser_of
from worker.execute import JobLimits
from worker.outcomes import OutcomeCode
from worker.profilers.ncu_choice import DEFAULT_LAUNCHES
from workloads.harness import RunOptions, run_workload
from workloads.measure.output import Events
from workloads.params import load_params
from workloads.registry import load_workloads
from workloads.spec import WorkloadSpec

README = ROOT / "README.md"
RESULTS_PAGE = DOCS / "results.md"
"""Held by tests/test_results.py, beside the example runs that it is made from."""
PAGES = (README, *sorted(DOCS.glob("*.md")))
EXAMPLE = DOCS / "examples" / "github-actions-compare.yml"
CODE = ("app", "captures", "core", "worker", "workloads", "analysis", "db")
INTERNAL = {"WARPBOARD_CONTAINER_PORT", "WARPBOARD_WORKER_SETTINGS"}
"""Set by one process of ours, or docker-compose.yml, for another."""

_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(
    r"`((?:analysis|app|bench|core|db|docs|requirements|tests|worker|workloads)/[\w./-]*)`"
)
_MODULE = re.compile(r"python3? -m ((?:app|bench|docs|worker|workloads)[\w.]*)")
_COMMAND = re.compile(r"(?:(?:\./|^|\s|/)warpboard|-m app\.cli) ((?:--data \S+ )?[a-z]+.*)$")
_VARIABLE = re.compile(r"\bWARPBOARD_[A-Z_]*[A-Z]\b")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return (info string, text) of the code blocks of a page."""
    return [(m[1], m[2]) for m in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def example(page: str, info: str) -> str:
    """Return the text of the one block with this info string."""
    found = [text for name, text in blocks(DOCS / page) if name == info]
    assert len(found) == 1
    return found[0]


def slug(heading: str) -> str:
    """Return a heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    return {slug(h) for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def shell_commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `warpboard` of each call in a shell text."""
    for line in text.replace("\\\n", " ").splitlines():
        found = _COMMAND.search(line.removeprefix("$ ").rstrip("`"))
        if found:
            words = shlex.split(found[1].replace("$(", "("), comments=True)
            cut = next((i for i, w in enumerate(words) if w in ("|", ">", ">>", "&&")), len(words))
            yield words[:cut]


def documented_commands() -> list[tuple[str, list[str]]]:
    """Return page and words of every call in a code block or in a sentence."""
    texts = [(p.name, text) for p in PAGES for info, text in blocks(p) if info != "toml"]
    texts += [
        (p.name, inline)
        for p in PAGES
        for inline in re.findall(r"`((?:\./)?warpboard [a-z][^`]*)`", p.read_text())
    ]
    texts.append((EXAMPLE.name, EXAMPLE.read_text()))
    return [(name, words) for name, text in texts for words in shell_commands(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files_and_anchors(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in _LINK.findall(text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {t.partition("#")[0] for t in _LINK.findall(README.read_text())}
    assert {f"docs/{p.name}" for p in DOCS.glob("*.md")} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_and_modules_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = [p for p in _PATH.findall(text) if "NAME" not in p and "vector_add" not in p]
    modules = [m.replace(".", "/") for m in _MODULE.findall(text)]
    lost = [p for p in paths if not (ROOT / p).exists()]
    lost += [m for m in modules if not any((ROOT / f"{m}{e}").exists() for e in (".py", ""))]
    assert lost == []


@pytest.mark.parametrize(
    ("page", "words"), documented_commands(), ids=lambda v: v if isinstance(v, str) else " ".join(v)
)
def test_commands_in_the_docs_exist(page: str, words: list[str]) -> None:
    command = next(w for i, w in enumerate(words) if w[0] != "-" and words[i - 1] != "--data")
    assert command in COMMANDS
    options = {o for a in parser_of(command)._actions for o in a.option_strings} | {"--data"}
    words = _before_program(words)
    if command != "test":
        assert {w.partition("=")[0] for w in words if w.startswith("--")} <= options


@pytest.mark.parametrize("page", (*PAGES, EXAMPLE), ids=lambda p: p.name)
def test_commands_in_code_blocks_are_accepted(page: Path) -> None:
    texts = [text for _, text in blocks(page)] if page.suffix == ".md" else [page.read_text()]
    for words in (words for text in texts for words in shell_commands(text)):
        if words[0] in COMMANDS and words[0] != "test" and "..." not in words:
            parser_of(words[0]).parse_args(_before_program(words[1:]))


def _before_program(words: list[str]) -> list[str]:
    """Return the words before `--`: those behind it are a program's."""
    return words[: words.index("--")] if "--" in words else words


def test_every_command_is_in_the_readme() -> None:
    named = {word for code in re.findall(r"`([a-z]+)[^`]*`", README.read_text()) for word in [code]}
    assert set(COMMANDS) <= named


@pytest.mark.parametrize(
    "page", sorted({*DOCS.glob("*.md")} - {RESULTS_PAGE}), ids=lambda p: p.name
)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generated(text) == text, "run: python -m docs.generate"


def test_every_workload_and_study_is_documented() -> None:
    text = {name: (DOCS / name).read_text() for name in ("workloads.md", "studies.md")}
    assert [w for w in load_workloads() if f"### {w}\n" not in text["workloads.md"]] == []
    assert [s.name for s in list_studies() if f"| `{s.name}` |" not in text["studies.md"]] == []
    assert [w for w in load_workloads() if f"`{w}`" not in README.read_text()] == []


def test_environment_variables_are_those_of_the_code() -> None:
    files = [p for room in CODE for p in (ROOT / room).rglob("*.py")]
    files += [ROOT / "warpboard", ROOT / "Dockerfile", *ROOT.glob("docker-compose*.yml")]
    used = {v for p in files for v in _VARIABLE.findall(p.read_text())}
    used |= {"WARPBOARD_NSYS", "WARPBOARD_NCU"}  # made from the tool's name
    assert used - INTERNAL - set(_VARIABLE.findall((DOCS / "command-line.md").read_text())) == set()
    assert {v for p in PAGES for v in _VARIABLE.findall(p.read_text())} - used == set()


def test_messages_and_warnings_that_are_explained_exist() -> None:
    sources = "\n".join(p.read_text() for p in (ROOT / "analysis").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)
    text = (DOCS / "read-my-own-captures.md").read_text().partition("## What the messages mean")[2]
    first_cells = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    named = [n for cell in first_cells for n in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 15
    pieces = [piece.strip(", ") for name in named for piece in name.split("...")]
    assert [p for p in pieces if p not in joined] == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("command-line.md", f"measures; default {DEFAULT_LAUNCHES} "),
        (
            "command-line.md",
            f"default {JobLimits().clean_s:.0f}, under a profiler {JobLimits().profiled_s:.0f} ",
        ),
        ("command-line.md", f"default {DEFAULT_MAX_CAPTURE_BYTES / 2**30:.0f} GiB"),
        ("compare-and-ci.md", f"or {MIN_PROCESSES} or more processes per side"),
        ("compare-and-ci.md", f"(beyond a factor of {1 + verdicts.FEW_FLOOR_FRAC:.0f} where none"),
        ("compare-and-ci.md", f"under {100 * verdicts.ASSUMED_FLOOR_FRAC:.1f} % where"),
        ("compare-and-ci.md", f"more than {100 * verdicts.WIDE_FRAC:.0f} % |"),
        ("definitions.md", f"idles {100 * IDLE_FRAC:.0f} % or more"),
        ("definitions.md", f"over {'half' if OPAQUE_FRAC == 0.5 else OPAQUE_FRAC} of the GPU"),
        (
            "architecture.md",
            f"silent for {EMBEDDED_SILENCE_S:.0f} s on\nthis host or {REMOTE_SILENCE_S:.0f} s",
        ),
        ("api.md", f"{'Twenty' if MAX_FAILURES == 20 else MAX_FAILURES} failed tokens a minute"),
    ],
)
def test_figures_are_those_of_the_code(page: str, said: str) -> None:
    assert said in (DOCS / page).read_text()


def test_architecture_names_the_routes_and_outcomes_of_the_code() -> None:
    text = (DOCS / "architecture.md").read_text()
    paths = {re.sub(r"\{.*?\}", "{}", path) for _, path, *_ in _OPERATIONS}
    named = {re.sub(r"\{.*?\}", "{}", p) for p in re.findall(r"`[A-Z]+ (/[^`?]*)[^`]*`", text)}
    assert {p.removeprefix("/api/v1") for p in paths} - named == set()
    assert f"`{' '.join(OutcomeCode)}`" in " ".join(text.split())


def transcripts() -> list[Path]:
    return [p for p in PAGES if any(info == "console run" for info, _ in blocks(p))]


@pytest.mark.parametrize("page", transcripts(), ids=lambda p: p.name)
def test_transcripts_come_out_as_printed(
    page: Path,
    data_dir: DataDir,
    copy_examples: Callable[..., list[Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`...` stands for the rest of a line, a line of `...` for any lines."""
    monkeypatch.setattr("app.demo.load.load_demo", copy_examples)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    for info, text in blocks(page):
        if info != "console run":
            continue
        for call in re.split(r"^(?=\$ )", text, flags=re.MULTILINE)[1:]:
            command, _, expected = call.partition("\n")
            assert main(next(shell_commands(command))) == 0, capsys.readouterr().err
            lines = [
                r"(?:.*\n)*?" if li == "..." else re.escape(li).replace(r"\.\.\.", ".*") + " *\n"
                for li in expected.splitlines()
            ]
            out = capsys.readouterr().out
            assert re.fullmatch("".join(lines), out), f"{command}\n{out}"


def test_workload_of_the_docs_runs(tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "workloads.vector_add"}
    exec(compile(example("add-a-workload.md", "python workload"), "vector_add.py", "exec"), names)
    spec = names["WORKLOAD"]
    assert isinstance(spec, WorkloadSpec) and spec.name == "vector_add"
    params = load_params(spec, {"n": 64, "iterations": 3, "warmup": 1})
    options = RunOptions(pass_name="clean", out=tmp_path, device="cpu")
    result = run_workload(spec, params, options, Events(None))
    assert result["status"] == "ok" and len(result["samples_ns"]) == 3
    assert result["cost"]["bytes"] == 12 * 64


def test_study_of_the_docs_is_one_and_its_job_can_be_submitted() -> None:
    names: dict[str, object] = {}
    exec(example("add-a-study.md", "python study"), names)
    study = names["STUDY"]
    assert isinstance(study, Study)
    assert JobSpec(**study.job).workload == "vector_add"


@pytest.mark.parametrize("path", sorted((DOCS / "images").glob("*.png")), ids=lambda p: p.name)
def test_pictures_are_wide_and_small(path: Path) -> None:
    assert path.stat().st_size <= 300_000
    assert Image.open(path).width >= 1200


def test_docs_speak_of_the_product_alone() -> None:
    texts = {p.name: p.read_text() for p in (*PAGES, EXAMPLE)}
    bad = re.compile(r"/work/|/tmp/|\bTODO\b|\bTBD\b")
    assert [name for name, text in texts.items() if bad.search(text)] == []
