"""Counts of the story: the provider's record of requests, held against what commands printed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from tileferry.entrypoints.demo.scenery import CAPTURED_ZOOM

Json = Mapping[str, Any]


@define(kw_only=True)
class Notebook:
    """What chapters note for the end. Places in the provider's record are numbers of lines."""

    before_download: int = 0
    before_resuming: int = 0
    after_download: int = 0
    killed: Json = field(factory=dict)
    """The area when the power went, as GeoJSON."""
    ready: Json = field(factory=dict)
    """The same before the flight."""


# the download


@frozen(kw_only=True)
class Downloaded:
    """What the provider was asked for, and what it is held against."""

    tiles: frozenset[str]
    safe: frozenset[str]
    """In the cache when the power went."""
    requests: int
    failed: int
    in_the_air: int
    """Answered well, and not yet in the cache when the power went."""
    twice: int
    """Of those that were safe: how many were asked for again."""
    attempts: Mapping[int, int]
    """How many tiles needed how many attempts."""


def downloaded(lines: Sequence[Json], notes: Notebook) -> Downloaded:
    """Hold the record of the download against the map of what was safe when the power went."""
    before = _of_tiles(lines[notes.before_download : notes.before_resuming])
    after = _of_tiles(lines[notes.before_resuming : notes.after_download])
    tiles = frozenset(line["tile"] for line in (*before, *after))
    safe = tiles - set(tiles_of(notes.killed, "hole"))
    again = Counter(line["tile"] for line in after)
    failed = Counter(line["tile"] for line in (*before, *after) if not _is_good(line))
    good = {line["tile"] for line in before if _is_good(line)}
    return Downloaded(
        tiles=tiles,
        safe=safe,
        requests=len(before) + len(after),
        failed=failed.total(),
        in_the_air=len((good - safe) & again.keys()),
        twice=sum(tile in again for tile in safe),
        attempts=Counter(1 + failed[tile] for tile in tiles),
    )


def _of_tiles(lines: Iterable[Json]) -> list[Json]:
    return [line for line in lines if line.get("tile") is not None]


def _is_good(line: Json) -> bool:
    return line["status"] == 200 and line["fault"] is None  # noqa: PLR2004  # HTTP's


def tiles_of(drawn: Json, kind: str) -> Iterator[str]:
    """Yield the tiles that a GeoJSON map has of a kind, as ``z/x/y``."""
    for feature in drawn.get("features", ()):
        place = feature["properties"]
        if place["kind"] == kind:
            for x in range(place["x_min"], place["x_max"] + 1):
                for y in range(place["y_min"], place["y_max"] + 1):
                    yield f"{place['zoom']}/{x}/{y}"


# the upload


@frozen(kw_only=True)
class Delivered:
    """What became of the flight's own tiles."""

    accepted: frozenset[str]
    giveups: Sequence[Json]
    attempts: Mapping[int, int]

    @property
    def given_up(self) -> frozenset[str]:
        """The tiles that a human has to decide about."""
        return frozenset(_short(giveup["tile_id"]) for giveup in self.giveups)


def delivered(lines: Iterable[Json], giveups: Json) -> Delivered:
    """Take what was delivered from the provider's record, and the rest from the giveups."""
    taken = frozenset(
        _short(line["tile_id"])
        for line in lines
        if line["kind"] == "upload" and line["status"] == "accepted"
    )
    attempts = Counter(giveup["attempts"] for giveup in giveups["giveups"])
    return Delivered(
        accepted=taken,
        giveups=giveups["giveups"],
        attempts=attempts + Counter({1: len(taken)}),
    )


def _short(tile_id: str) -> str:
    return tile_id[tile_id.index(f"/{CAPTURED_ZOOM}/") + 1 :]
