"""The disk as it is after a power cut at some point of a block log."""

import mmap
import os
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from attrs import define, field, frozen

from powerloss.block_events import BlockEvent, EventKind, iter_events

SECTOR = 512
_CHUNK = 64 * 1024


class Survivors(StrEnum):
    """Which of the writes since the last flush reached the disk."""

    NONE = "none"
    ALL = "all"
    SOME = "some"
    """Each write with the same probability, drawn for the cut."""
    TORN = "torn"
    """As ``SOME``, but for each sector of a write."""


@frozen(kw_only=True)
class PowerCut:
    """A cut right after one event of the log. The same cut always gives the same image."""

    index: int
    survivors: Survivors
    seed: int

    def __str__(self) -> str:
        return f"{self.index}:{self.survivors}:{self.seed}"

    @classmethod
    def parse(cls, text: str) -> "PowerCut":
        index, survivors, seed = text.split(":")
        return cls(index=int(index), survivors=Survivors(survivors), seed=int(seed))


@frozen
class Moment:
    """Something that happened while the disk was written: a promise, or the start of a phase."""

    at_s: float
    phase: str | None = None
    """The name of the phase that starts; ``None``: a promise."""


def choose_cuts(
    events: Sequence[BlockEvent], moments: Sequence[Moment], count: int, *, seed: int, whole: bool
) -> list[PowerCut]:
    """Return cuts in the order of the log: after every promise, and equally many in each phase.

    After a promise, what was not flushed by then is lost: the promise rests on flushed data only.
    ``whole`` makes all cuts like that, for a file system that needs its writes in order.
    """
    chance = random.Random(seed)  # noqa: S311  # repeatable, not a secret
    times = [event.at_s for event in events]
    after = [bisect_right(times, moment.at_s) for moment in moments]
    promised: Sequence[int] = [
        index
        for index, moment in zip(after, moments, strict=True)
        if moment.phase is None and index < len(events)
    ]
    promised = _spread(sorted(set(promised)), count if whole else count // 2)
    cuts = {_cut_flushed(index) for index in promised}
    starts = [i for i, moment in zip(after, moments, strict=True) if moment.phase is not None]
    phases = [range(*bounds) for bounds in pairwise([*starts, len(events)])]
    phases = [phase for phase in phases if phase]
    for number, phase in enumerate(phases):
        left = (count - len(cuts)) // (len(phases) - number)
        flushes = [index for index in phase if events[index].kind is EventKind.FLUSH]
        cuts |= {_cut_flushed(index) for index in _spread(flushes, left if whole else left // 3)}
        if not whole:
            cuts |= {_cut_at_random(chance.choice(phase), chance) for _ in range(left - left // 3)}
    return sorted(cuts, key=lambda cut: cut.index)


def _cut_flushed(index: int) -> PowerCut:
    return PowerCut(index=index, survivors=Survivors.NONE, seed=0)


def _cut_at_random(index: int, chance: random.Random) -> PowerCut:
    # The interesting cuts lie between two flushes: what of the unflushed writes survives?
    kinds = [Survivors.ALL, Survivors.SOME, Survivors.SOME, Survivors.TORN]
    return PowerCut(index=index, survivors=chance.choice(kinds), seed=chance.getrandbits(32))


def _spread(places: Sequence[int], count: int) -> Sequence[int]:
    if len(places) <= count:
        return places
    return [places[number * len(places) // count] for number in range(count)]


@define
class DiskHistory:
    """A base image and its log. Images must be built in the order of the log."""

    log: Path
    content: bytearray = field(repr=False)
    """The durable state before ``_applied``."""
    events: list[BlockEvent] = field(repr=False)
    _applied: int = field(default=0, init=False)
    _chunks: set[int] = field(init=False, repr=False)
    """Where the disk can have data."""

    def __attrs_post_init__(self) -> None:
        used = {
            start
            for event in self.events
            for start in range(
                event.offset - event.offset % _CHUNK, event.offset + event.length, _CHUNK
            )
        }
        size = range(0, len(self.content), _CHUNK)
        self._chunks = used.union(at for at in size if self.content[at : at + _CHUNK].strip(b"\0"))

    @classmethod
    def read(cls, base: Path, log: Path) -> "DiskHistory":
        return cls(log, bytearray(base.read_bytes()), list(iter_events(log)))

    def find_cut(self, at_s: float) -> PowerCut:
        """Return the cut of this disk at a time, which leaves what was flushed by then."""
        index = bisect_right([event.at_s for event in self.events], at_s) - 1
        return _cut_flushed(max(0, index))

    def write_image(self, cut: PowerCut, image: Path) -> None:
        """Let a file be the disk after a cut; only what differs in it is written."""
        flushed = self._find_last_flush(cut.index)
        if cut.index < self._applied - 1:
            raise ValueError(f"cut {cut} is before another one that was made")
        with self.log.open("rb") as log:
            for event in self.events[self._applied : flushed + 1]:
                if event.kind is EventKind.WRITE:
                    self.content[event.offset : event.offset + event.length] = _read(log, event)
            self._applied = max(self._applied, flushed + 1)
            unflushed = self.events[flushed + 1 : cut.index + 1]
            survived = list(_iter_survivors(cut, [(e.offset, _read(log, e)) for e in unflushed]))
        with image.open("r+b" if image.exists() else "w+b") as file:
            file.truncate(len(self.content))
            with mmap.mmap(file.fileno(), 0) as mapped:
                for start in sorted(self._chunks.union(_list_data(file.fileno()))):
                    part = self.content[start : start + _CHUNK]
                    if mapped[start : start + _CHUNK] != part:
                        mapped[start : start + _CHUNK] = bytes(part)
                for offset, data in survived:
                    mapped[offset : offset + len(data)] = data

    def _find_last_flush(self, index: int) -> int:
        for number in range(index, self._applied - 1, -1):
            if self.events[number].kind is EventKind.FLUSH:
                return number
        return self._applied - 1


def _list_data(fd: int) -> Iterator[int]:
    """Yield the start of each chunk with data in a sparse file: a recovery writes anywhere."""
    end, size = 0, os.fstat(fd).st_size
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:  # there is no more
            return
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield from range(start - start % _CHUNK, end, _CHUNK)


def _read(log: BinaryIO, event: BlockEvent) -> bytes:
    log.seek(event.position)
    return log.read(event.length)


def _iter_survivors(
    cut: PowerCut, writes: Sequence[tuple[int, bytes]]
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of what reached the disk of the unflushed writes."""
    if cut.survivors is Survivors.NONE:
        return
    chance = random.Random(cut.seed)  # noqa: S311  # repeatable
    share = 1.0 if cut.survivors is Survivors.ALL else chance.random()
    for offset, data in writes:
        step = SECTOR if cut.survivors is Survivors.TORN else max(1, len(data))
        for start in range(0, len(data), step):
            if share >= 1.0 or chance.random() < share:
                yield offset + start, data[start : start + step]
