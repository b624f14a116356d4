"""Back-off for restarting a process that exited unexpectedly."""

from dataclasses import dataclass

STEADY_S = 60.0
"After this long a process counts as healthy: its next failure is a first one."


@dataclass(slots=True)
class Restarts:
    """Counts the failures of one process."""

    delays_s: tuple[float, ...]
    "The last one is kept."
    num_failures: int = 0

    def delay_s(self, lived_s: float) -> float:
        """Return how long to wait before the next start, after an end that came so late."""
        self.num_failures = 1 if lived_s > STEADY_S else self.num_failures + 1
        return self.delays_s[min(self.num_failures, len(self.delays_s)) - 1]
