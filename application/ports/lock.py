"""The lock on a cache: one tile manager at a time."""

from typing import Protocol


class CacheLock(Protocol):
    """Held by the operator's tooling while it works on a cache; gone when its process is gone."""

    def acquire(self) -> None:
        """Take the lock, or refuse at once, naming its holder; who holds it is refused too."""
        ...

    def release(self) -> None:
        """Give it back; without holding it, this does nothing."""
        ...

    def check_held(self) -> None:
        """Refuse unless this process holds the lock, through this object or another."""
        ...
