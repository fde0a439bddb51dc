"""How a benchmark measures and what it reports.

Machines are noisy, so peers take turns, many rounds of each, and the median round counts. What is
reported is a ratio of two times of the same run; seconds of one machine mean nothing on another.
"""

import statistics
import time
from collections.abc import Callable, Mapping

from attrs import frozen


@frozen(kw_only=True)
class Ratio:
    """One line of the report."""

    name: str
    ratio: float
    goal: float
    at_least: bool = False
    """Whether the ratio should reach the goal; otherwise it should stay within it."""
    detail: str = ""

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.ratio >= self.goal if self.at_least else self.ratio <= self.goal


def seconds_per_call(
    contenders: Mapping[str, Callable[[int], object]], *, calls: int, rounds: int = 41
) -> dict[str, float]:
    """Time each contender, which makes the given number of calls, in turns; return the medians."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            begun = time.perf_counter()
            contender(calls)
            times[name].append((time.perf_counter() - begun) / calls)
    return {name: statistics.median(values) for name, values in times.items()}
