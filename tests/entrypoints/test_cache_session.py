"""A session on a cache: its folder can be made, and its lock can be waited for."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from attrs import define

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.memory import ManualClock
from tileferry.domain.errors import CacheLockError, StorageError
from tileferry.entrypoints.cache_session import (
    CacheSession,
    check_folder,
    find_folder_problem,
    make_folder,
)


@pytest.mark.parametrize("below", ["", "cache", "far/below"])
def test_creatable_folder_has_no_problem(tmp_path: Path, below: str) -> None:
    folder = tmp_path / below
    check_folder(folder)
    assert folder.exists() is (below == ""), "looking makes nothing"
    make_folder(folder)
    assert find_folder_problem(folder) is None


@pytest.mark.parametrize("name", ["file", "file/cache", "file/far/below", "link"])
def test_blocking_path_is_named_by_check_and_create(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for attempt in (check_folder, make_folder):
        with pytest.raises(
            StorageError, match=r"set c11\.cache_root to a folder that can be created"
        ):
            attempt(tmp_path / name)
    in_the_way = tmp_path / name.split("/", maxsplit=1)[0]
    assert find_folder_problem(tmp_path / name) == f"{in_the_way}: Not a directory"


def test_relative_folder_is_resolved_from_cwd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_folder_problem(Path("a/b")) is None
    Path("a").touch()
    assert find_folder_problem(Path("a/b")) == f"{tmp_path / 'a'}: Not a directory"


# Waiting for the lock


@define
class ReleasingClock(ManualClock):
    """A clock whose sleeps let the other process get on."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.on_sleep()

    on_sleep: Callable[[], object] = lambda: None


@define
class Mine:
    """A cache that belongs to this database."""

    def ensure(self) -> None: ...
    def check(self) -> None: ...


def open_session(root: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> CacheSession:
    monkeypatch.setattr(
        "tileferry.entrypoints.cache_session.get_schema_status",
        lambda _: SimpleNamespace(check=Mine),
    )
    settings = SimpleNamespace(check_writable=Mine)
    database = SimpleNamespace(read_settings=lambda: settings)
    return CacheSession(
        root=root,
        lock=FileCacheLock(root=root),
        database=lambda: database,  # type: ignore[arg-type,return-value]  # one that is writable
        identity=Mine,  # type: ignore[arg-type]  # as above
        clock=clock,
    )


def test_second_writer_waits_until_the_cache_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FileCacheLock(root=tmp_path)
    told: list[CacheLockError] = []
    other.acquire()
    clock = ReleasingClock(0.0)
    clock.on_sleep = lambda: other.release() if len(clock.slept) == 3 else None
    session = open_session(tmp_path, clock, monkeypatch)
    with session.hold(wait_s=60, on_wait=told.append):
        assert (len(clock.slept), len(told)) == (3, 1)


def test_wait_ends_at_its_limit_with_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, clock = FileCacheLock(root=tmp_path), ManualClock(0.0)
    other.acquire()
    session = open_session(tmp_path, clock, monkeypatch)
    with pytest.raises(CacheLockError), session.hold(wait_s=1.2):
        pass
    assert sum(clock.slept) == pytest.approx(1.2)
    with pytest.raises(CacheLockError), session.hold():
        pass
    other.release()
    session.check()
