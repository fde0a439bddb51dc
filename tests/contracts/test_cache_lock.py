"""What every CacheLock must do."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tileferry.adapters.filesystem.cache_directory import FileCacheLock
from tileferry.adapters.memory import MemoryCacheLock
from tileferry.application.ports.cache import CacheLock
from tileferry.domain.errors import CacheLockError

Maker = Callable[[], CacheLock]


@pytest.fixture(params=["memory", "file"])
def new_lock(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    """Make any number of locks on one cache."""
    made: list[CacheLock] = []
    holders: dict[str, str] = {}

    def make() -> CacheLock:
        if request.param == "memory":
            made.append(MemoryCacheLock(holders=holders))
        else:
            made.append(FileCacheLock(root=tmp_path))
        return made[-1]

    yield make
    for lock in made:
        lock.release()


def test_free_lock_is_acquired_and_released(new_lock: Maker) -> None:
    lock = new_lock()
    for _ in range(3):
        lock.acquire()
        lock.check_held()
        lock.release()


def test_only_one_holder_at_a_time(new_lock: Maker) -> None:
    lock, rival = new_lock(), new_lock()
    lock.acquire()
    with pytest.raises(CacheLockError):
        rival.acquire()
    lock.check_held()
    lock.release()
    rival.acquire()
    with pytest.raises(CacheLockError):
        lock.acquire()


def test_second_acquire_raises_and_keeps_lock(new_lock: Maker) -> None:
    lock = new_lock()
    lock.acquire()
    with pytest.raises(CacheLockError, match="holds it already"):
        lock.acquire()
    lock.check_held()
    lock.release()
    with pytest.raises(CacheLockError):
        lock.check_held()


def test_check_held_without_lock_raises_with_remedy(new_lock: Maker) -> None:
    lock = new_lock()
    with pytest.raises(CacheLockError, match=r"does not hold.*acquire"):
        lock.check_held()


def test_check_held_works_from_another_instance_in_process(new_lock: Maker) -> None:
    lock, checker = new_lock(), new_lock()
    lock.acquire()
    checker.check_held()
    lock.release()
    with pytest.raises(CacheLockError):
        checker.check_held()


def test_release_without_holding_changes_nothing(new_lock: Maker) -> None:
    lock, bystander = new_lock(), new_lock()
    bystander.release()
    lock.acquire()
    bystander.release()
    lock.check_held()
    lock.release()
    lock.release()


def test_acquire_can_be_retried_after_refusal(new_lock: Maker) -> None:
    lock, rival = new_lock(), new_lock()
    lock.acquire()
    for _ in range(3):
        with pytest.raises(CacheLockError):
            rival.acquire()
    rival.release()
    lock.check_held()
    lock.release()
    rival.acquire()
    rival.check_held()


def test_only_one_thread_acquires_lock(new_lock: Maker) -> None:
    def try_it(lock: CacheLock) -> bool:
        try:
            lock.acquire()
        except CacheLockError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(try_it, [new_lock() for _ in range(32)])) == 1
