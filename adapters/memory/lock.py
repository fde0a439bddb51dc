"""A lock between the parts of one process."""

from attrs import define, field

from tileferry.domain.errors import CacheLockError


@define(kw_only=True, eq=False)
class MemoryCacheLock:
    """Locks that share ``holders`` and a ``name`` are locks on one cache."""

    name: str = "memory"
    holders: dict[str, object] = field(factory=dict, repr=False)
    _mark: object | None = field(default=None, init=False)

    def acquire(self) -> None:
        """Take the lock, or refuse at once; who holds it is refused too."""
        mark = object()
        if self.holders.setdefault(self.name, mark) is not mark:
            raise CacheLockError(
                path=self.name,
                problem="this process holds it already",
                remedy="release it first: it is not taken twice",
            )
        self._mark = mark

    def release(self) -> None:
        """Give it back; without holding it, this does nothing."""
        if self._mark is not None:
            del self.holders[self.name]
            self._mark = None

    def check_held(self) -> None:
        """Refuse unless somebody in this process holds the lock."""
        if self.name not in self.holders:
            raise CacheLockError(
                path=self.name,
                problem="this process does not hold it",
                remedy="acquire it before starting the tile manager",
            )
