"""Making the next thing while the one before is used."""

from collections.abc import Generator, Iterator
from typing import TypeVar

from tileferry.application.ports.background import Background, Task

Item = TypeVar("Item")


def one_ahead(items: Iterator[Item], background: Background | None) -> Generator[Item, None, None]:
    """Yield items; with a ``background`` each is made there while the one before is used.

    One is ahead, never more. What goes wrong with an item is raised when its turn comes. Whoever
    stops early closes this: when that returns, nothing goes on in the background any more.
    """
    if background is None:
        yield from items
        return
    made, task = _begin(items, background)
    try:
        while True:
            error = task.exception()
            if error is not None:
                raise error
            if not made:
                return
            item = made.pop()
            made, task = _begin(items, background)
            yield item
    finally:
        task.exception()


def _begin(items: Iterator[Item], background: Background) -> tuple[list[Item], Task]:
    made: list[Item] = []

    def make() -> None:
        for item in items:
            made.append(item)
            return

    return made, background.submit(make)
