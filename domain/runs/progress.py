"""How far a run is that a worker processes."""

from attrs import field, frozen, validators

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject
from tileferry.domain.validation import integer, number, text


@frozen(kw_only=True)
class RunProgress:
    """The progress of a run's current attempt, as its worker last reported it."""

    tiles_done: int = field(default=0, validator=integer(0))
    tiles_total: int | None = field(default=None, validator=validators.optional(integer(0)))
    """``None`` until the tiles are listed."""
    tiles_before: int = field(default=0, validator=integer(0))
    """How many of ``tiles_done`` were done before this attempt."""
    size_bytes: int = field(default=0, validator=integer(0))
    """The size of the tiles that this attempt transferred."""
    elapsed_s: float = field(default=0.0, validator=number(0))
    """The time since the transfer began."""
    waiting: str | None = field(default=None, validator=validators.optional(text))
    """What the attempt waits for; ``None`` if it does not wait."""

    @property
    def tiles_per_s(self) -> float | None:
        """The mean rate of this attempt; ``None`` before the first tile."""
        done = self.tiles_done - self.tiles_before
        return done / self.elapsed_s if done > 0 and self.elapsed_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """The time until the end at this rate; ``None`` if it cannot be estimated."""
        rate = self.tiles_per_s
        if rate is None or self.tiles_total is None:
            return None
        return max(0, self.tiles_total - self.tiles_done) / rate

    def as_json(self) -> dict[str, JsonValue]:
        """Return the fields as JSON."""
        return {
            "tiles_done": self.tiles_done,
            "tiles_total": self.tiles_total,
            "tiles_before": self.tiles_before,
            "size_bytes": self.size_bytes,
            "elapsed_s": self.elapsed_s,
            "waiting": self.waiting,
        }

    @classmethod
    def from_json(cls, value: JsonValue) -> "RunProgress | None":
        """Parse the output of ``as_json``; return ``None`` for anything else.

        Progress only informs, so an unreadable one must not hide its run.
        """
        try:
            data = JsonObject.from_value(value, "progress").fields
            return cls(**{name: data[name] for name in _FIELDS})  # type: ignore[arg-type]  # the validators check
        except (InvalidValueError, KeyError):
            return None


_FIELDS = tuple(RunProgress().as_json())
