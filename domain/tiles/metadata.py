"""Tile metadata, and the location and digest of a tile's bytes in the cache."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.gates import FUTURE_TOLERANCE, FreshnessLabel, SectorClass
from tileferry.domain.tiles.limits import TILE_BYTES_MAX
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.voting import VotingStatus
from tileferry.domain.validation import (
    as_float,
    aware,
    check_fields,
    format_field_name,
    instance,
    integer,
    is_name,
    name,
    positive,
    sha256_hex,
)

if TYPE_CHECKING:
    from attrs import Attribute


BlobLocation: TypeAlias = tuple[int, int]
"""Two numbers assigned by the store. Only the store interprets them; its index persists them."""


@frozen(kw_only=True)
class BlobRef:
    """A tile's bytes inside the cache: their location, length and digest."""

    location: BlobLocation
    length: int
    sha256: str = field(validator=sha256_hex)

    def __attrs_post_init__(self) -> None:
        if not (
            _is_location(self.location)
            and type(self.length) is int
            and 0 <= self.length <= TILE_BYTES_MAX
        ):
            check_fields(self, _CHECKS)


def _is_location(value: object) -> bool:
    if type(value) is not tuple or len(value) != 2:  # noqa: PLR2004  # a pair
        return False
    first, second = value
    return type(first) is type(second) is int and first >= 0 and second >= 0


def _check_location(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    if not _is_location(value):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be two integers, each 0 or more",
        )


_CHECKS = {"location": _check_location, "length": integer(0, TILE_BYTES_MAX)}


VALIDATOR_CHARS_MAX = 256


@frozen(kw_only=True)
class TileValidators:
    """What a server said to recognize the version of a tile, for a conditional request."""

    etag: str | None = None
    last_modified: str | None = None

    @classmethod
    def from_headers(cls, etag: str | None, last_modified: str | None) -> "TileValidators | None":
        """Return the validators in a response's headers; ``None`` if there are no usable ones."""
        given = [text if text and _is_header_text(text) else None for text in (etag, last_modified)]
        return cls(etag=given[0], last_modified=given[1]) if any(given) else None


def _is_header_text(text: str) -> bool:
    return text.isascii() and text.isprintable() and len(text) <= VALIDATOR_CHARS_MAX


_FIRST_STATUSES = (VotingStatus.TRUSTED, VotingStatus.PENDING)


def _first_status(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    if not (isinstance(value, VotingStatus) and value in _FIRST_STATUSES):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem=f"must be one of {', '.join(_FIRST_STATUSES)}",
        )


@frozen(kw_only=True)
class NewTile:
    """A tile whose bytes are stored but which is not visible yet."""

    tile_id: TileId
    flight_id: str
    """The flight that it was downloaded for or captured by."""
    produced_at: datetime
    resolution_m_per_px: float = field(converter=as_float)
    sector_class: SectorClass
    blob: BlobRef
    voting_status: VotingStatus = VotingStatus.TRUSTED
    """Trusted if it comes from the provider, pending if the aircraft captured it."""
    validators: TileValidators | None = None

    def __attrs_post_init__(self) -> None:
        if not (
            type(self.tile_id) is TileId
            and is_name(self.flight_id)
            and type(self.produced_at) is datetime
            and self.produced_at.tzinfo is UTC
            and type(self.resolution_m_per_px) is float
            and 0.0 < self.resolution_m_per_px < math.inf
            and type(self.sector_class) is SectorClass
            and type(self.blob) is BlobRef
            and self.voting_status is VotingStatus.TRUSTED
        ):
            check_fields(self, _NEW_TILE_CHECKS)


_NEW_TILE_CHECKS = {
    "tile_id": instance(TileId),
    "flight_id": name,
    "produced_at": aware,
    "resolution_m_per_px": positive,
    "sector_class": instance(SectorClass),
    "blob": instance(BlobRef),
    "voting_status": _first_status,
}


@frozen(kw_only=True)
class NewTiles:
    """Several new tiles, a list for each field; what is the same for all is stored once.

    Iterating yields a ``NewTile`` for each.
    """

    flight_id: str
    sector_class: SectorClass
    voting_status: VotingStatus = VotingStatus.TRUSTED
    tile_ids: Sequence[TileId]
    produced_at: Sequence[datetime]
    resolutions_m_per_px: Sequence[float]
    validators: Sequence[TileValidators | None]
    locations: Sequence[BlobLocation]
    lengths: Sequence[int]
    digests: Sequence[bytes]
    """The sha256 of each."""

    @classmethod
    def from_tile(cls, tile: NewTile) -> "NewTiles":
        """Return one tile as columns."""
        return cls(
            flight_id=tile.flight_id,
            sector_class=tile.sector_class,
            voting_status=tile.voting_status,
            tile_ids=[tile.tile_id],
            produced_at=[tile.produced_at],
            resolutions_m_per_px=[tile.resolution_m_per_px],
            validators=[tile.validators],
            locations=[tile.blob.location],
            lengths=[tile.blob.length],
            digests=[bytes.fromhex(tile.blob.sha256)],
        )

    def __attrs_post_init__(self) -> None:
        if not self._is_plain():
            for _ in self:  # names the invalid field
                pass

    def _is_plain(self) -> bool:
        """Return whether all fields are valid, judging whole columns; ``False`` if in doubt."""
        columns = (self.produced_at, self.resolutions_m_per_px, self.validators,
                   self.locations, self.lengths, self.digests)  # fmt: skip
        return (
            {len(self.tile_ids)} == set(map(len, columns))
            and set(map(type, self.tile_ids)) == {TileId}
            and is_name(self.flight_id)
            and type(self.sector_class) is SectorClass
            and self.voting_status is VotingStatus.TRUSTED
            and all(type(date) is datetime and date.tzinfo is UTC for date in set(self.produced_at))
            and set(map(type, self.resolutions_m_per_px)) == {float}
            and all(0.0 < each < math.inf for each in set(self.resolutions_m_per_px))
            and all(map(_is_location, self.locations))
            and set(map(type, self.lengths)) == {int}
            and 0 <= min(self.lengths) <= max(self.lengths) <= TILE_BYTES_MAX
            and {(type(digest), len(digest)) for digest in self.digests} == {(bytes, 32)}
        )

    def __iter__(self) -> Iterator[NewTile]:
        for tile_id, produced_at, resolution, validators, location, length, digest in zip(
            self.tile_ids,
            self.produced_at,
            self.resolutions_m_per_px,
            self.validators,
            self.locations,
            self.lengths,
            self.digests,
            strict=True,
        ):
            yield NewTile(
                tile_id=tile_id,
                flight_id=self.flight_id,
                produced_at=produced_at,
                resolution_m_per_px=resolution,
                sector_class=self.sector_class,
                blob=BlobRef(location=location, length=length, sha256=digest.hex()),
                voting_status=self.voting_status,
                validators=validators,
            )


@frozen(kw_only=True)
class TileMetadata:
    """The metadata of a visible tile."""

    tile_id: TileId
    flight_id: str
    produced_at: datetime = field(validator=aware)
    resolution_m_per_px: float
    sector_class: SectorClass
    freshness: FreshnessLabel
    blob: BlobRef
    voting_status: VotingStatus
    upload_attempts: int = field(default=0, validator=integer(0))
    stored_at: datetime = field(validator=aware)
    last_used_at: datetime = field(validator=aware)
    reconfirmed_at: datetime | None = None
    """When the provider last confirmed it as unchanged; ``None``: not since it was stored."""
    validators: TileValidators | None = None

    @property
    def confirmed_at(self) -> datetime:
        """When the tile was last known to be what the provider has."""
        return self.stored_at if self.reconfirmed_at is None else self.reconfirmed_at

    @property
    def is_dated_ahead(self) -> bool:
        """Whether the date was in the future when the tile was stored, so must be wrong."""
        return self.produced_at > self.stored_at + FUTURE_TOLERANCE

    def yields_to(
        self, *, flight_id: str, produced_at: datetime, voting_status: VotingStatus, sha256: str
    ) -> bool:
        """Return whether a new version of this tile replaces it.

        The later production date wins. Of two equal dates the later arrival wins, so that a
        damaged tile can be repaired. A date that was in the future when its tile was stored is
        wrong, so that tile always loses. A tile pending upload is replaced only by a capture of its
        own flight. A tile in giveup is never replaced; an operator decides. A capture whose bytes
        the provider already has is not stored again, because it would be uploaded twice.
        """
        if self.voting_status is VotingStatus.UPLOAD_GIVEUP:
            return False
        is_capture = voting_status is VotingStatus.PENDING
        if self.voting_status is VotingStatus.PENDING:
            if not is_capture or flight_id != self.flight_id:
                return False
        elif is_capture and sha256 == self.blob.sha256:
            return False
        return self.is_dated_ahead or produced_at >= self.produced_at


def replaces(new: NewTile, existing: TileMetadata) -> bool:
    """Return whether ``new`` replaces ``existing``, which has the same id."""
    return existing.yields_to(
        flight_id=new.flight_id,
        produced_at=new.produced_at,
        voting_status=new.voting_status,
        sha256=new.blob.sha256,
    )
