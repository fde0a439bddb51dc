"""One thing is made while the one before is used: in order, no more than one, and never after."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, current_thread, main_thread

import pytest

from tileferry.application.transfers.ahead import one_ahead


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


@pytest.mark.parametrize("count", [0, 1, 2, 10])
def test_all_come_in_their_order(background: ThreadPoolExecutor, count: int) -> None:
    assert list(one_ahead(iter(range(count)), background)) == list(range(count))
    assert list(one_ahead(iter(range(count)), None)) == list(range(count))


def test_the_next_is_made_elsewhere_while_one_is_used_and_no_more_than_that(
    background: ThreadPoolExecutor,
) -> None:
    begun = [Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number, event in enumerate(begun):
            assert current_thread() is not main_thread()
            event.set()
            yield number

    with closing(one_ahead(items(), background)) as made:
        assert next(made) == 0
        assert begun[1].wait(10)
        background.submit(lambda: None).result()  # all that was handed over is done
        assert not begun[2].is_set()


def test_without_a_background_nothing_is_made_before_its_turn() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(3):
            made.append(number)
            yield number

    with closing(one_ahead(items(), None)) as ahead:
        assert next(ahead) == 0
        assert made == [0]


def test_an_error_comes_in_its_turn(background: ThreadPoolExecutor) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = one_ahead(items(), background)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


def test_closing_waits_for_what_is_being_made(background: ThreadPoolExecutor) -> None:
    release, ended = Event(), Event()

    def items() -> Iterator[int]:
        yield 1
        release.wait(10)
        ended.set()
        yield 2

    ahead = one_ahead(items(), background)
    assert next(ahead) == 1
    release.set()
    ahead.close()
    assert ended.is_set()
