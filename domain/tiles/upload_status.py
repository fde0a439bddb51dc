"""The upload status of a tile, and of all tiles of a flight in little memory."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import overload

from attrs import field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import printable
from tileferry.domain.tiles.tile_id import ZOOM_MAX, TileId
from tileferry.domain.validation import instance


class TileUploadStatus(StrEnum):
    """The result for one tile: the provider's response, or that the tile could not be sent."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    UNREADABLE = "unreadable"
    """The cache could not read the tile, so it was not sent."""

    @property
    def acknowledged(self) -> bool:
        """Whether the provider has the tile, from this upload or an earlier one."""
        return self in (TileUploadStatus.ACCEPTED, TileUploadStatus.DUPLICATE)


def _sanitize_reason(reason: str | None) -> str | None:
    return printable(reason) if isinstance(reason, str) else reason


@frozen(kw_only=True, weakref_slot=False)  # a report has one for each tile of a flight
class PerTileStatus:
    """The upload status of one tile."""

    tile_id: TileId = field(validator=instance(TileId))
    status: TileUploadStatus = field(validator=instance(TileUploadStatus))
    reason: str | None = field(
        default=None, converter=_sanitize_reason, validator=validators.optional(instance(str))
    )
    """The provider's reason or the cache's fault, sanitized for terminals, logs and the audit."""
    attempt: str | None = field(default=None, validator=validators.optional(instance(str)))
    """The id of a failed attempt. It is counted once, even if reported again after a crash."""

    @property
    def is_charged(self) -> bool:
        """Whether the tile failed in a way that costs one of its attempts.

        A rejection always does. An unreadable tile is charged if its own bytes are damaged, which
        its attempt's id says; the cache may be unavailable as a whole otherwise.
        """
        if self.status is TileUploadStatus.UNREADABLE:
            return self.attempt is not None
        return self.status is TileUploadStatus.REJECTED


_INDEX_BITS, _ZOOM_BITS, _SOURCE_BITS = ZOOM_MAX, 5, 16
_ZOOM_AT = 2 * _INDEX_BITS
_SOURCE_AT = _ZOOM_AT + _ZOOM_BITS
_DUPLICATE_AT = _SOURCE_AT + _SOURCE_BITS
_INDEX_MASK = (1 << _INDEX_BITS) - 1
_TILE_MASK = (1 << _DUPLICATE_AT) - 1
SOURCES_MAX = 1 << _SOURCE_BITS
_PART_TILES, _PARTS_MAX = 8_192, 16


class TileStatuses(Sequence[PerTileStatus]):
    """The statuses of tiles, in order; entries can be added at the end.

    A tile that was acknowledged without a comment takes eight bytes: its id and one bit. As objects
    they would take 250, and a report has one for each tile of a flight.
    """

    __slots__ = ("_others", "_packed", "_sources", "_unique", "tally")

    def __init__(self, entries: Iterable[PerTileStatus] = ()) -> None:
        self._packed = array("Q")
        self._sources: dict[str, int] = {}
        self._others: dict[int, PerTileStatus] = {}
        """The entries that say more, by their place."""
        self._unique = 0
        """How many entries at the beginning are known to be of different tiles."""
        self.tally: Counter[TileUploadStatus] = Counter()
        """The number of tiles by status."""
        self.extend(entries)

    def append(self, entry: PerTileStatus) -> None:
        """Add a status."""
        tile, status = entry.tile_id, entry.status
        source = self._sources.setdefault(tile.source, len(self._sources))
        if source >= SOURCES_MAX:
            raise InvalidValueError(
                field="TileStatuses",
                value=tile.source,
                problem=f"is the source after the {SOURCES_MAX:,} that a report can hold",
            )
        if not status.acknowledged or entry.reason is not None or entry.attempt is not None:
            self._others[len(self._packed)] = entry
        self._packed.append(
            (status is TileUploadStatus.DUPLICATE) << _DUPLICATE_AT
            | source << _SOURCE_AT
            | tile.zoom << _ZOOM_AT
            | tile.x << _INDEX_BITS
            | tile.y
        )
        self.tally[status] += 1

    def extend(self, entries: Iterable[PerTileStatus]) -> None:
        """Add statuses."""
        for entry in entries:
            self.append(entry)

    @property
    def tiles_acknowledged(self) -> int:
        return self.tally[TileUploadStatus.ACCEPTED] + self.tally[TileUploadStatus.DUPLICATE]

    @property
    def failures(self) -> Iterator[PerTileStatus]:
        """The statuses of the tiles that were not acknowledged."""
        return (entry for entry in self._others.values() if not entry.status.acknowledged)

    def has_repeated_tile(self) -> bool:
        """Return whether a tile has two entries."""
        if self._unique == len(self):
            return False
        parts = min(_PARTS_MAX, 1 + len(self) // _PART_TILES)  # a set of all would need memory
        for part in range(parts):
            seen: set[int] = set()
            count = 0
            for packed in self._packed:
                tile = packed & _TILE_MASK
                if tile % parts == part:
                    seen.add(tile)
                    count += 1
            if len(seen) < count:
                return True
        self._unique = len(self)
        return False

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[PerTileStatus]:
        sources = list(self._sources)
        for place, packed in enumerate(self._packed):
            yield self._others.get(place) or _unpack(packed, sources)

    @overload
    def __getitem__(self, place: int) -> PerTileStatus: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[PerTileStatus]: ...
    def __getitem__(self, place: int | slice) -> PerTileStatus | Sequence[PerTileStatus]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        packed = self._packed[place]
        return self._others.get(place % len(self)) or _unpack(packed, list(self._sources))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(PerTileStatus.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} statuses>"


def _unpack(packed: int, sources: Sequence[str]) -> PerTileStatus:
    is_duplicate = packed >> _DUPLICATE_AT
    return PerTileStatus(
        tile_id=TileId(
            source=sources[packed >> _SOURCE_AT & SOURCES_MAX - 1],
            zoom=packed >> _ZOOM_AT & (1 << _ZOOM_BITS) - 1,
            x=packed >> _INDEX_BITS & _INDEX_MASK,
            y=packed & _INDEX_MASK,
        ),
        status=TileUploadStatus.DUPLICATE if is_duplicate else TileUploadStatus.ACCEPTED,
    )
