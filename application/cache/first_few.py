"""What went wrong with many things: all are counted, and the first are kept by name."""

from typing import Generic, TypeVar

from attrs import define, field

NAMED_MAX = 1_000
Item = TypeVar("Item")


@define
class FirstFew(Generic[Item]):
    """A list that ends growing, and goes on counting."""

    count: int = field(default=0, init=False)
    _named: list[Item] = field(factory=list, init=False)

    @property
    def named(self) -> tuple[Item, ...]:
        """Those that are kept."""
        return tuple(self._named)

    def add(self, item: Item) -> bool:
        """Count one, and return whether it is kept."""
        self.count += 1
        is_kept = len(self._named) < NAMED_MAX
        if is_kept:
            self._named.append(item)
        return is_kept
