"""Divide whole-capture nanoseconds by a number of iterations so that the parts still add up."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def per_iteration(parts_ns: Mapping[K, int], num_iterations: int) -> dict[K, int]:
    """Return each part divided by the number of iterations, in whole ns.

    The parts of the answer add up to the rounded share of the total: what rounding down leaves
    goes to the largest remainders.
    """
    total = round(sum(parts_ns.values()) / num_iterations)
    shares = {name: value // num_iterations for name, value in parts_ns.items()}
    left = total - sum(shares.values())
    by_remainder = sorted(parts_ns, key=lambda name: parts_ns[name] % num_iterations, reverse=True)
    for name in by_remainder[: max(0, left)]:
        shares[name] += 1
    return shares
