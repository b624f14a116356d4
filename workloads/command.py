"""The user's own program, unchanged: its own steps are found and measured from outside.

Off unless the operator names the program in WARPBOARD_ALLOW_COMMANDS; what is compared are real
paths, so a link cannot stand in for another program. `argv` is a JSON list that goes to the program
as it is: there is no shell. `worker/own_program.py` runs it. FLOPs and bytes of it are unknown;
`ranges` names the NVTX ranges to keep. Source: https://docs.python.org/3/library/subprocess.html
"""

import json
from dataclasses import dataclass

from core.errors import UserError
from core.program_settings import NO_SETTINGS, PATTERNS, parse_settings, settings_text
from workloads.spec import CommonParams, WorkloadSpec, param


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(CommonParams):
    """Parameters of `command`."""

    argv: str = param(
        "[]", doc='program and arguments as a JSON list: ["/path/program", "-n"]', basic=True
    )
    name: str = param("", doc="display name; empty: the program's file name", basic=True)
    cwd: str = param("", doc="working directory; empty: the worker's", basic=True)
    ranges: str = param("", doc="NVTX ranges to keep, separated by commas; empty: all", basic=True)
    timeout_s: float = param(
        600.0, doc="time limit of one run", unit="s", minimum=0.1, maximum=86_400
    )
    iterations: int = param(
        0, doc="steps to measure, then the program is ended; 0 is all of them", minimum=0,
        maximum=1_000_000,
    )  # fmt: skip
    warmup: int = param(
        0, doc="steps before the measured ones; 0: until their times settle", minimum=0,
        smallest=0,
        maximum=1_000_000,
    )  # fmt: skip
    latency: str = param(
        "step to step", doc="from a step's start to the next one's, or to its own end",
        choices=("step to step", "step alone"),
    )  # fmt: skip
    metrics: str = param(
        "[]", doc='numbers that the program prints, a JSON list: ["tok/s: ([0-9.]+)"]'
    )

    settings: str = param(
        NO_SETTINGS, doc=f"variables that are set for it, `NAME=VALUE`, a blank between: "
        f"{', '.join(PATTERNS)}",
    )  # fmt: skip

    def __post_init__(self) -> None:
        _texts("argv", self.argv)
        _texts("metrics", self.metrics)
        # One way to write each, since equal settings are the same job.
        object.__setattr__(self, "settings", settings_text(parse_settings(self.settings)))

    @property
    def words(self) -> list[str]:
        """Return argv as a list; UserError when it is not a JSON list of texts."""
        return _texts("argv", self.argv)

    @property
    def patterns(self) -> list[str]:
        """Return the regular expressions of the metrics."""
        return _texts("metrics", self.metrics)


def _texts(field: str, text: str) -> list[str]:
    try:
        words = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{field}: {text[:60]!r} is not JSON: {error}") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{field}: {text[:60]!r} is not a JSON list of texts")
    return words


def estimate_memory_bytes(p: Params) -> None:
    """Return None: what another program needs is unknown."""


WORKLOAD = WorkloadSpec(
    name="command",
    title="Own program",
    about="Any program the operator has allowed, run as it is.",
    source="https://docs.python.org/3/library/subprocess.html",
    params=Params,
    modes=("run",),
    estimate_memory_bytes=estimate_memory_bytes,
)
