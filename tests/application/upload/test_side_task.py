"""Work beside the caller's own: in the background if there is one, before it otherwise."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread, main_thread

import pytest

from tileferry.application.upload.side_task import SideTask


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


def test_work_runs_in_the_background(background: ThreadPoolExecutor) -> None:
    may_end = Event()

    def work() -> bool:
        assert may_end.wait(10)
        return current_thread() is main_thread()

    task = SideTask.start(work, background)
    may_end.set()
    assert task.get_result() is False
    assert task.get_result() is False


def test_work_without_a_background_is_done_at_once() -> None:
    done: list[int] = []
    task = SideTask.start(lambda: done.append(1), None)
    assert done == [1]
    assert task.get_result() is None


def test_error_is_raised_with_the_result(background: ThreadPoolExecutor) -> None:
    def fail() -> None:
        raise ValueError("broken")

    task = SideTask.start(fail, background)
    with pytest.raises(ValueError, match="broken"):
        task.get_result()
    with pytest.raises(ValueError, match="broken"):
        SideTask.start(fail, None)
