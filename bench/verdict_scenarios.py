"""Equal builds (A/A) of every kind that a verdict must not call different.

Each scenario returns the samples of n_a and n_b processes of one build, in the order they ran.
"""

from collections.abc import Callable

import numpy as np

from analysis.compare.statistics import Order

NUM_SAMPLES = 30
NOISE_FRAC = 0.01
Rng = np.random.Generator
Groups = list[np.ndarray]
Sides = tuple[Groups, Groups]
Scenario = Callable[[Rng, int, int], Sides]


def process(
    rng: Rng, level: float, inside: float = NOISE_FRAC, num_samples: int = NUM_SAMPLES
) -> np.ndarray:
    return level * np.exp(rng.normal(0.0, inside, num_samples))


def of_levels(rng: Rng, levels: np.ndarray, n_a: int, inside: float = NOISE_FRAC) -> Sides:
    """Return processes at these levels, those of A first."""
    groups = [process(rng, level, inside) for level in levels]
    return groups[:n_a], groups[n_a:]


def noise(rng: Rng, n: int, between: float = NOISE_FRAC) -> np.ndarray:
    return np.exp(rng.normal(0.0, between, n))


def quiet(rng: Rng, n_a: int, n_b: int) -> Sides:
    return of_levels(rng, noise(rng, n_a + n_b), n_a)


def quiet_few_samples(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Side B took 8 samples per process where A took 30, with 5 % noise inside."""
    a = [process(rng, level, 0.05) for level in noise(rng, n_a)]
    return a, [process(rng, level, 0.05, 8) for level in noise(rng, n_b)]


def warm_up(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Each process starts up to 30 % slow and settles, at its own pace."""
    steps = np.arange(NUM_SAMPLES)
    a, b = (
        [g * (1 + rng.uniform(0, 0.3) * np.exp(-steps / rng.uniform(1, 15))) for g in side]
        for side in quiet(rng, n_a, n_b)
    )
    return a, b


def session_drift(rng: Rng, n_a: int, n_b: int) -> Sides:
    """The machine slows by up to 1 % a process while A and B run in turn."""
    a, b = quiet(rng, n_a, n_b)
    step = rng.uniform(-0.01, 0.01)
    return (
        [g * np.exp(step * 2 * i) for i, g in enumerate(a)],
        [g * np.exp(step * (2 * i + 1)) for i, g in enumerate(b)],
    )


def block_drift(rng: Rng, n_a: int, n_b: int) -> Sides:
    """The same drift, with all of A before all of B."""
    drift = np.exp(rng.uniform(-0.01, 0.01) * np.arange(n_a + n_b))
    return of_levels(rng, noise(rng, n_a + n_b) * drift, n_a)


def clustered_levels(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Levels of neighbours in time are alike (autocorrelation 0.9), A and B in turn."""
    log_levels = autocorrelated(rng, 2 * max(n_a, n_b), 0.9, 0.02)
    groups = [process(rng, level) for level in np.exp(log_levels)]
    return groups[::2][:n_a], groups[1::2][:n_b]


def clustered_samples(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Samples of a process wander (autocorrelation 0.95, 5 %) instead of being independent."""
    groups = [
        level * np.exp(autocorrelated(rng, NUM_SAMPLES, 0.95, 0.05))
        for level in noise(rng, n_a + n_b)
    ]
    return groups[:n_a], groups[n_a:]


def autocorrelated(rng: Rng, n: int, factor: float, spread: float) -> np.ndarray:
    """Return a first-order autoregressive series around 0 with this spread."""
    values = np.empty(n)
    value = rng.normal(0.0, spread)
    for i in range(n):
        value = factor * value + np.sqrt(1 - factor**2) * rng.normal(0.0, spread)
        values[i] = value
    return values


def heavy_tails(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Levels with Student's t, 2 degrees of freedom; 5 % of samples up to 5 times as long."""
    levels = np.exp(np.clip(NOISE_FRAC * rng.standard_t(2, n_a + n_b), -2, 2))
    groups = []
    for level in levels:
        spikes = np.where(rng.random(NUM_SAMPLES) < 0.05, rng.uniform(1, 5, NUM_SAMPLES), 1.0)
        groups.append(process(rng, level) * spikes)
    return groups[:n_a], groups[n_a:]


def noisy_some(rng: Rng, n_a: int, n_b: int) -> Sides:
    """One process in five is 5 to 100 % slower and five times as noisy."""
    return _with_noisy(rng, n_a, n_b, rng.random(n_a + n_b) < 0.2)


def noisy_one(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Exactly one noisy process, on side B."""
    return _with_noisy(rng, n_a, n_b, np.arange(n_a + n_b) == n_a + n_b - 1)


def _with_noisy(rng: Rng, n_a: int, n_b: int, is_noisy: np.ndarray) -> Sides:
    groups = []
    for noisy in is_noisy:
        level = np.exp(rng.normal(0.0, NOISE_FRAC)) * (rng.uniform(1.05, 2.0) if noisy else 1.0)
        groups.append(process(rng, level, NOISE_FRAC * (5 if noisy else 1)))
    return groups[:n_a], groups[n_a:]


def far_two(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Two processes of side B are up to 10 % slower."""
    levels = noise(rng, n_a + n_b)
    levels[-2:] *= rng.uniform(1.02, 1.1, 2)
    return of_levels(rng, levels, n_a)


def two_states(rng: Rng, n_a: int, n_b: int) -> Sides:
    """Each process falls at random into a fast or a 40 % slower state."""
    slow = np.where(rng.random(n_a + n_b) < 0.4, 1.4, 1.0)
    return of_levels(rng, slow * noise(rng, n_a + n_b, 0.003), n_a, 0.003)


def switching_clock(rng: Rng, n_a: int, n_b: int) -> Sides:
    """The clock of each process switches now and then between two states 5 % apart."""
    groups = []
    for level in noise(rng, n_a + n_b, 0.003):
        switches = np.cumsum(rng.random(NUM_SAMPLES) < 0.05) + rng.integers(2)
        groups.append(process(rng, level, 0.002) * np.where(switches % 2, 1.05, 1.0))
    return groups[:n_a], groups[n_a:]


def coarse_timer(rng: Rng, n_a: int, n_b: int) -> Sides:
    """A timer whose ticks are 2.5 % of the time apart, at any place between two ticks."""
    tick = 0.05
    level = 2.0 + rng.uniform(0, tick)
    a, b = quiet(rng, n_a, n_b)
    return tuple([np.round(level * g / tick) * tick for g in side] for side in (a, b))  # type: ignore[return-value]


SCENARIOS: dict[str, tuple[Scenario, Order]] = {
    "quiet": (quiet, "unknown"),
    "quiet, in pairs": (quiet, "paired"),
    "8 samples against 30": (quiet_few_samples, "unknown"),
    "warm-up drift in each process": (warm_up, "unknown"),
    "autocorrelated samples": (clustered_samples, "unknown"),
    "autocorrelated processes, in turn": (clustered_levels, "unknown"),
    "session drift, in pairs": (session_drift, "paired"),
    "session drift, in turn, order not known": (session_drift, "unknown"),
    "session drift, A before B": (block_drift, "block"),
    "heavy tails": (heavy_tails, "unknown"),
    "heavy tails, in pairs": (heavy_tails, "paired"),
    "noisy processes": (noisy_some, "unknown"),
    "one noisy process": (noisy_one, "unknown"),
    "two slow processes of B": (far_two, "unknown"),
    "two-state machine": (two_states, "unknown"),
    "clock that switches inside": (switching_clock, "unknown"),
    "coarse timer": (coarse_timer, "unknown"),
}
SIZES = ((2, 2), (3, 3), (4, 4), (5, 5), (10, 10))
UNEVEN_SIZES = ((6, 3), (6, 4), (5, 10))
UNEVEN = ("quiet", "8 samples against 30", "heavy tails", "noisy processes", "two-state machine")
"""Scenarios that are also run with another number of processes on each side."""
