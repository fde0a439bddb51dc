"""A clock that moves only when told, or slept on."""

from attrs import define, field


@define
class ManualClock:
    """Starts where it is told; sleeping moves it and is remembered."""

    _now_s: float = 1_750_000_000.0
    _monotonic_s: float = 0.0
    slept: list[float] = field(factory=list, init=False)

    def now(self) -> float:
        """Return the time it was set to, plus what passed."""
        return self._now_s

    def monotonic(self) -> float:
        """Return what passed."""
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        """Pass ``seconds`` at once."""
        self.slept.append(seconds)
        self.advance(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Pass ``seconds`` at once."""
        self.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass outside of any sleep."""
        self._now_s += seconds
        self._monotonic_s += seconds

    def set_wall_clock(self, now_s: float) -> None:
        """Jump, as when somebody corrects the machine's clock; monotonic time does not notice."""
        self._now_s = now_s
