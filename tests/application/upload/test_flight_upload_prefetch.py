"""One thing is made while the one before is used: in order, no more than one, and never after."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, current_thread, main_thread

import pytest

from tileferry.application.upload.flight_upload import prefetch_one


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


@pytest.mark.parametrize("count", [0, 1, 2, 10])
def test_items_are_returned_in_order(background: ThreadPoolExecutor, count: int) -> None:
    assert list(prefetch_one(iter(range(count)), background)) == list(range(count))
    assert list(prefetch_one(iter(range(count)), None)) == list(range(count))


def test_exactly_one_item_is_prefetched_in_background(
    background: ThreadPoolExecutor,
) -> None:
    begun = [Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number, event in enumerate(begun):
            assert current_thread() is not main_thread()
            event.set()
            yield number

    with closing(prefetch_one(items(), background)) as made:
        assert next(made) == 0
        assert begun[1].wait(10)
        background.submit(lambda: None).result()  # all that was handed over is done
        assert not begun[2].is_set()


def test_nothing_is_prefetched_without_executor() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(3):
            made.append(number)
            yield number

    with closing(prefetch_one(items(), None)) as ahead:
        assert next(ahead) == 0
        assert made == [0]


def test_error_is_raised_in_order(background: ThreadPoolExecutor) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = prefetch_one(items(), background)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


def test_close_waits_for_prefetch(background: ThreadPoolExecutor) -> None:
    release, ended = Event(), Event()

    def items() -> Iterator[int]:
        yield 1
        release.wait(10)
        ended.set()
        yield 2

    ahead = prefetch_one(items(), background)
    assert next(ahead) == 1
    release.set()
    ahead.close()
    assert ended.is_set()
