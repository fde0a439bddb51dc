"""A process that downloads into a real cache until it is done, is killed, or loses its power."""

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import attrs
from attrs import frozen

from support.cache import open_cache
from tileferry.adapters.filesystem.cache_directory import FileCacheLock
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.postgres import Database
from tileferry.application.cache.group_commit import GroupLimits
from tileferry.domain.errors import TileManagerError

EXIT_REFUSED = 3
"""The exit code after an error that was told in plain words."""


@frozen(kw_only=True)
class CacheWriterPlan:
    """What to write, and how to die."""

    root: Path
    database_url: str
    version: int
    seed: int
    calls_left: int = 0
    """Die at this call to the operating system; 0 is never."""
    power_loss: bool = False
    """Then also lose what was not made durable."""

    @property
    def error(self) -> Path:
        """Where the writer says why it gave up."""
        return self.root.with_suffix(".error")


def write_cache(plan: CacheWriterPlan, begun: Connection) -> None:
    """Store every tile that is not journaled; then compact what was replaced."""
    begun.close()
    chance = random.Random(plan.seed)  # noqa: S311  # a repeatable test, not a secret
    calls = DyingDisk(plan, chance).calls if plan.calls_left else FileCalls()
    limits = GroupLimits(tiles_max=chance.randint(1, 40), age_ms_max=chance.choice([5, 500]))
    lock = FileCacheLock(root=plan.root)
    try:
        lock.acquire()
        database = Database.from_url(plan.database_url)
        with (
            ThreadPoolExecutor(max_workers=1) as executor,
            open_cache(
                plan.root,
                database,
                version=plan.version,
                limits=limits,
                background=executor if chance.random() < 0.5 else None,
                calls=calls,
            ) as cache,
        ):
            with cache.group:
                for tile_id in cache.missing():
                    cache.add(tile_id)
            cache.journal.finish()
            cache.store.compact(live_share_min=0.8)
    except TileManagerError as error:
        plan.error.write_text(str(error))
        sys.exit(EXIT_REFUSED)


class DyingDisk:
    """Real calls, one of which is the last: before it, after it, or in the middle of a write.

    It knows what was made durable. A loss of power takes back the rest, or leaves zeros of it.
    """

    def __init__(self, plan: CacheWriterPlan, chance: random.Random) -> None:
        self._left = plan.calls_left
        self._power_loss = plan.power_loss
        self._chance = chance
        self._power = Lock()
        self._durable_sizes: dict[Path, int] = {}
        self._new: list[Path] = []
        self._replaced: dict[Path, bytes] = {}
        real = FileCalls()
        self.calls = FileCalls(
            **{
                item.name: self._wrap_call(item.name, getattr(real, item.name))
                for item in attrs.fields(FileCalls)
            }
        )

    def _wrap_call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self, f"_note_{name}", None)

        def call(*args: Any, **named: Any) -> Any:
            with self._power:  # who dies keeps it: no other thread does anything after that
                return self._call(name, real, note, args, named)

        return call

    def _call(
        self,
        name: str,
        real: Callable[..., Any],
        note: Callable[..., None] | None,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        self._left -= 1
        if self._left == 0 and self._chance.random() < 0.5:
            self._die()
        if note is not None:
            note(*args, **named)
        if self._left == 0 and name in {"write", "writev"}:
            whole = bytes(args[1]) if name == "write" else b"".join(args[1])
            os.write(args[0], whole[: self._chance.randrange(len(whole))])
            self._die()
        result = real(*args, **named)
        if name in {"fdatasync", "fsync"}:
            self._note_synced(args[0])
        if self._left == 0:
            self._die()
        return result

    def _die(self) -> None:
        if self._power_loss:
            self._lose_power()
        os.kill(os.getpid(), signal.SIGKILL)

    def _lose_power(self) -> None:
        for path, old in self._replaced.items():
            if self._chance.random() < 0.5:
                path.write_bytes(old)
        for path, durable in self._durable_sizes.items():
            if path.exists():
                written = path.stat().st_size
                os.truncate(path, self._chance.randint(min(durable, written), written))
                if self._chance.random() < 0.3:
                    os.truncate(path, written)  # the size got there, the content did not
        for path in reversed(self._new):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    # What each call leaves to be lost

    def _note_open(self, name: str, flags: int, *_: int, dir_fd: int | None = None) -> None:
        if flags & os.O_CREAT and dir_fd is not None:
            self._note_mkdir(name, dir_fd=dir_fd)

    def _note_mkdir(self, name: str, *_: int, dir_fd: int) -> None:
        path = _path(dir_fd) / name
        if not path.exists():
            self._new.append(path)

    def _note_write(self, fd: int, _content: object) -> None:
        self._durable_sizes.setdefault(_path(fd), os.fstat(fd).st_size)

    _note_writev = _note_write

    def _note_ftruncate(self, fd: int, size: int) -> None:
        path = _path(fd)
        self._durable_sizes[path] = min(size, self._durable_sizes.get(path, size))

    def _note_rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        old, new = _path(src_dir_fd) / source, _path(dst_dir_fd) / target
        if new.exists():
            self._replaced[new] = new.read_bytes()
        else:
            self._new.append(new)
        self._durable_sizes.pop(new, None)
        if old in self._durable_sizes:
            self._durable_sizes[new] = self._durable_sizes.pop(old)

    def _note_synced(self, fd: int) -> None:
        path = _path(fd)
        self._durable_sizes.pop(path, None)
        self._new = [new for new in self._new if new.parent != path]
        self._replaced = {new: old for new, old in self._replaced.items() if new.parent != path}


def _path(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()
