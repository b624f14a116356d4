"""Print an ncu report as JSON: `python -m analysis.readers.ncu.report_child REPORT`.

NVIDIA's `ncu_report` is native code that a damaged file can bring down or keep busy, so it runs in
a process of its own under limits. The package is optional: its licence is NVIDIA's own
(proprietary, free of charge, not redistributed here).
"""

import json
import math
import re
import resource
import sys
from typing import Any

MAX_MEMORY_BYTES = 8 << 30
_KINDS = {0: "", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_SECTION = re.compile(r"@section:[^:@]*:([^@]*)@")
_URL = re.compile(r"@url:([^:@]*):(\S*?)@")


def main(report_path: str) -> None:
    """Print {"launches": [...]}: kernel name, metrics with units, rules and NVTX path of each."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    import ncu_report  # type: ignore[import-untyped, import-not-found, unused-ignore]

    context = ncu_report.load_report(report_path)
    launches = [action for each in context for action in each]
    json.dump({"launches": [_launch(action) for action in launches]}, sys.stdout)


def _launch(action: Any) -> dict[str, Any]:
    metrics: dict[str, list[Any]] = {}
    for name in action:
        metric = action[name]
        value = metric.value()
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        if value is None or isinstance(value, (int, float, str)):
            metrics[name] = [value, metric.unit() or ""]
    return {
        "kernel": action.name(action.NameBase_DEMANGLED) or action.name(),
        "metrics": metrics,
        "rules": [_rule(rule) for rule in action.rule_results_as_dicts()],
        "path": _nvtx_path(action),
    }


def _rule(rule: Any) -> dict[str, Any]:
    message = rule.get("rule_message") or {}
    text = _SECTION.sub(r"\1", str(message.get("message", "")))
    return {
        "rule": rule.get("rule_identifier", ""),
        "kind": _KINDS.get(int(message.get("type") or 0), ""),
        "message": _URL.sub(r"\1 (\2)", text),
        "speedup": (rule.get("speedup_estimation") or {}).get("speedup"),
    }


def _nvtx_path(action: Any) -> str | None:
    state = action.nvtx_state()
    names: list[str] = []
    for number in state.domains() if state else ():
        domain = state.domain_by_id(number)
        prefix = "" if domain.name() == "<default domain>" else f"{domain.name()}:"
        names += [prefix + name for name in domain.push_pop_ranges()]
    return "/".join(names) or None


if __name__ == "__main__":
    main(sys.argv[1])
