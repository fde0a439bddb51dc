"""A clock for tests that moves only when advanced or slept on."""

from attrs import define, field


@define
class ManualClock:
    """A manual clock. Sleeping advances it and is recorded in ``slept``."""

    _now_s: float = 1_750_000_000.0
    _monotonic_s: float = 0.0
    slept: list[float] = field(factory=list, init=False)

    def now(self) -> float:
        """Return the wall-clock time."""
        return self._now_s

    def monotonic(self) -> float:
        """Return the time that has passed, unaffected by ``set_wall_clock``."""
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        """Advance by ``seconds`` without waiting."""
        self.slept.append(seconds)
        self.advance(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Advance by ``seconds`` without waiting."""
        self.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Advance both clocks without recording a sleep."""
        self._now_s += seconds
        self._monotonic_s += seconds

    def set_wall_clock(self, now_s: float) -> None:
        """Set the wall clock, as a clock correction does; monotonic time is unchanged."""
        self._now_s = now_s
