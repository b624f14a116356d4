"""Write the generated parts of the docs: `python -m docs.generate`.

A part lies between `<!-- begin NAME: ... -->` and `<!-- end NAME -->`. The source is the code that
the product itself runs by: the parsers, the definitions, the workloads, the studies. First of all
the answers by which the example runs are loaded are made again (`app.demo.answers`).
"""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from analysis.classify.classes import Category, Origin
from analysis.definitions import DEFINITIONS, Definition
from analysis.studies import Study, list_studies
from analysis.trace.gaps import EVIDENCE
from app.cli import main as cli
from app.demo import answers
from docs import advice_rows, kernel_rows, measured, projection_rows, rank_rows
from worker import main as worker_main
from worker import run_bundle
from worker.profile import command as profile_command
from workloads.registry import load_workloads
from workloads.spec import CommonParams, ParamField, WorkloadSpec

DOCS = Path(__file__).resolve().parent
_PART = re.compile(r"(<!-- begin (\w+):[^\n]*-->\n).*?(<!-- end \2 -->)", re.DOTALL)


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser that reads the words of one command."""
    if command == "profile":
        return profile_command.make_parser()
    if command == "run":
        return run_bundle._parser()
    if command == "worker":
        return worker_main._parser()
    for action in cli._parser(command)._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser: argparse.ArgumentParser = action.choices[command]
            return parser
    raise AssertionError("the command line has no commands")


def commands() -> str:
    """Return a heading, a sentence and a table of arguments for every command."""
    parts = []
    for name, about in cli.COMMANDS.items():
        rows = [_argument(a) for a in parser_of(name)._actions if _is_shown(name, a)]
        table = _table(("argument", "meaning"), rows) if rows else ""
        parts.append(f"### {name}\n\n{about[0].upper()}{about[1:]}.\n\n{table}".rstrip())
    return "\n\n".join(parts)


def _is_shown(command: str, action: argparse.Action) -> bool:
    is_everywhere = "--help" in action.option_strings
    is_everywhere |= "--data" in action.option_strings and command != "worker"
    return not is_everywhere and action.help != argparse.SUPPRESS


def _argument(action: argparse.Action) -> tuple[str, str]:
    names = ", ".join(action.option_strings)
    shown = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    if action.choices is not None:
        shown = "\\|".join(map(str, action.choices))
    words = " ".join(w for w in (names, str(shown)) if w)
    many = action.nargs in ("+", "*", argparse.REMAINDER) or isinstance(
        action, argparse._AppendAction
    )
    text = action.help or ""
    has_default = action.default not in (None, "", False, [], argparse.SUPPRESS)
    if has_default and "default" not in text and action.option_strings:
        text += f"{'; ' if text else ''}default {action.default}"
    return f"`{words}{' ...' if many else ''}`", text


def definitions_of(keys: Iterable[str]) -> str:
    """Return the table of the definitions with these keys."""
    rows = [_definition(DEFINITIONS[k]) for k in keys]
    return _table(("key", "name", "unit", "meaning", "formula", "from"), rows)


def _definition(definition: Definition) -> tuple[str, ...]:
    formula = f"`{definition.formula}`" if definition.formula else ""
    return (
        f"`{definition.key}`",
        definition.label,
        definition.unit,
        definition.meaning,
        formula,
        definition.obtained,
    )


def summary_definitions() -> str:
    """Return the definitions of the numbers of a run's summary."""
    return definitions_of(k for k in DEFINITIONS if "." not in k or k.startswith("latency_ms."))


def table_definitions() -> str:
    """Return the definitions of table columns, one table each."""
    tables: dict[str, list[str]] = {}
    for key in DEFINITIONS:
        if "." in key and not key.startswith("latency_ms."):
            tables.setdefault(key.split(".")[0], []).append(key)
    return "\n\n".join(f"### {name}\n\n{definitions_of(keys)}" for name, keys in tables.items())


def idle_causes() -> str:
    """Return the causes of idle time and their evidence."""
    return _table(("cause", "when"), [(f"`{k}`", v) for k, v in EVIDENCE.items()])


def classes() -> str:
    """Return the categories and origins of kernels."""
    return "\n".join(
        f"- {what}: {', '.join(f'`{member}`' for member in kind)}"
        for what, kind in (("category", Category), ("origin", Origin))
    )


def workloads() -> str:
    """Return a section for every workload: presets and parameters."""
    return "\n\n".join(_workload(spec) for spec in load_workloads().values())


def _workload(spec: WorkloadSpec) -> str:
    common = CommonParams.__dataclass_fields__
    fields = [f for f in spec.fields if f.name not in common]
    rows = [(f"`{f.name}`", f.doc, _default(f), _allowed(f)) for f in fields]
    presets = ", ".join(f"`{name}`" for name in spec.all_presets)
    lines = [f"### {spec.name}", "", f"{spec.title}. {spec.about}", ""]
    lines += [f"- presets: {presets}; default {_preset(spec)}, on a CPU `tiny`"]
    lines += [f"- phases: {', '.join(f'`{p}`' for p in spec.phases)}"] if spec.phases else []
    lines += [f"- source: <{spec.source}>", "", ""]
    return "\n".join(lines) + _table(("parameter", "meaning", "default", "allowed"), rows)


def _preset(spec: WorkloadSpec) -> str:
    return f"`{spec.default_preset}`" if spec.default_preset else "the values below"


def _default(f: ParamField) -> str:
    return f"`{str(f.default).lower() if f.kind == 'bool' else f.default}`"


def _allowed(f: ParamField) -> str:
    if f.choices:
        return ", ".join(f"`{c}`" for c in f.choices)
    if f.kind == "bool":
        return "`true`, `false`"
    low, high = f.minimum, f.maximum
    shown = f"{low} or more" if low is not None and high is None else ""
    if low is not None and high is not None:
        shown = f"{low} to {high}"
    return " ".join(part for part in (shown, f.unit) if part)


def common_params() -> str:
    """Return the parameters that every workload has."""
    spec = next(iter(load_workloads().values()))
    names = CommonParams.__dataclass_fields__
    fields = [f for f in spec.fields if f.name in names and f.name != "preset"]
    rows = [(f"`{f.name}`", f.doc, _default(f), _allowed(f)) for f in fields]
    return _table(("parameter", "meaning", "default", "allowed"), rows)


def studies() -> str:
    """Return the studies of our own runs and those that lay out one publication."""
    parts = []
    for title, is_publication in (("Questions", False), ("Publications", True)):
        chosen = [s for s in list_studies() if s.is_publication == is_publication]
        rows = [(f"`{s.name}`", s.title, _question(s)) for s in chosen]
        parts.append(f"### {title}\n\n{_table(('name', 'title', 'about'), rows)}")
    return "\n\n".join(parts)


def _question(study: Study) -> str:
    return " ".join(study.about.split())


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(c) for c in row)} |" for row in lines)


def _cell(text: str) -> str:
    text = text.replace("\n", " ")
    return text if "`" in text and "\\|" in text else re.sub(r"(?<!\\)\|", r"\\|", text)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "summary": summary_definitions,
    "tables": table_definitions,
    "idle": idle_causes,
    "classes": classes,
    "workloads": workloads,
    "common": common_params,
    "studies": studies,
    "example_runs": measured.example_runs,
    "peaks": measured.measured_peaks,
    "overhead": measured.profiling_overhead,
    "projected": measured.projected_latencies,
    "projection_errors": projection_rows.projection_errors,
    "advice_constants": advice_rows.constant_rows,
    "advice_record": advice_rows.record_rows,
    "advice_held_out": advice_rows.held_out_rows,
    "advice_later": partial(advice_rows.later_rows, 1),
    "advice_again": partial(advice_rows.later_rows, 2),
    "advice_version_3": partial(advice_rows.later_rows, 3),
    "advice_version_4": partial(advice_rows.later_rows, 4),
    "advice_not_offered": advice_rows.not_offered_rows,
    "advice_models": advice_rows.model_rows,
    "rank_rows": rank_rows.rank_rows,
    "kernel_goals": kernel_rows.kernel_goals,
    "decode_counters": kernel_rows.decode_counters,
    **{f"study_{name}": partial(measured.study_part, name) for name in measured.SHOWN},
    **{
        f"kernels_{name}": partial(kernel_rows.kernel_table, name)
        for name in (
            "attention_forward",
            "attention_backward",
            "attention_decode",
            "gemm",
            "moe",
            "rms_norm",
        )
    },
}


def generated(text: str) -> str:
    """Return the text of a page with its generated parts made again."""
    return _PART.sub(lambda m: f"{m[1]}\n{PARTS[m[2]]()}\n\n{m[3]}", text)


def main() -> None:
    answers.write()
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = generated(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path.name}: written")
    for path, svg in measured.charts().items():
        if not path.exists() or path.read_text(encoding="utf-8") != svg:
            path.write_text(svg, encoding="utf-8")
            print(f"{path.name}: written")


if __name__ == "__main__":
    main()
