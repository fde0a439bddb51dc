"""The disk as it is after a power cut at some point of a block log."""

import random
from enum import StrEnum
from pathlib import Path

from attrs import define, field, frozen

from powerloss.block_events import BlockEvent, EventKind, iter_events

SECTOR = 512


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


def choose_cuts(
    events: list[BlockEvent], count: int, *, seed: int, after_s: float = 0.0
) -> list[PowerCut]:
    """Return cuts over the whole log, in its order: at every flush, and between flushes."""
    chance = random.Random(seed)  # noqa: S311  # repeatable, not a secret
    places = [number for number, event in enumerate(events) if event.at_s >= after_s]
    flushes = [number for number in places if events[number].kind is EventKind.FLUSH]
    chosen = [
        PowerCut(index=number, survivors=Survivors.NONE, seed=0)
        for number in _spread(flushes, count // 3)
    ]
    # The interesting cuts lie between two flushes: what of the unflushed writes survives?
    kinds = [Survivors.ALL, Survivors.SOME, Survivors.SOME, Survivors.TORN]
    chosen += [
        PowerCut(index=number, survivors=chance.choice(kinds), seed=chance.getrandbits(32))
        for number in _spread(places, count - len(chosen))
    ]
    return sorted(chosen, key=lambda cut: cut.index)


def _spread(places: list[int], count: int) -> list[int]:
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

    @classmethod
    def read(cls, base: Path, log: Path) -> "DiskHistory":
        return cls(log, bytearray(base.read_bytes()), list(iter_events(log)))

    def build_image(self, cut: PowerCut) -> bytearray:
        """Return the content of the disk after a cut."""
        with self.log.open("rb") as log:

            def read(event: BlockEvent) -> bytes:
                log.seek(event.position)
                return log.read(event.length)

            flushed = self._find_last_flush(cut.index)
            for event in self.events[self._applied : flushed + 1]:
                if event.kind is EventKind.WRITE:
                    self.content[event.offset : event.offset + event.length] = read(event)
            self._applied = max(self._applied, flushed + 1)
            image = bytearray(self.content)
            if cut.survivors is not Survivors.NONE:
                chance = random.Random(cut.seed)  # noqa: S311  # repeatable
                share = 1.0 if cut.survivors is Survivors.ALL else chance.random()
                step = SECTOR if cut.survivors is Survivors.TORN else None
                for event in self.events[flushed + 1 : cut.index + 1]:
                    data = read(event)
                    for start in range(0, len(data), step or max(1, len(data))):
                        if share >= 1.0 or chance.random() < share:
                            part = data[start : start + step] if step else data
                            at = event.offset + start
                            image[at : at + len(part)] = part
            return image

    def _find_last_flush(self, index: int) -> int:
        for number in range(index, self._applied - 1, -1):
            if self.events[number].kind is EventKind.FLUSH:
                return number
        return self._applied - 1
