"""The contents of a manifest, which is written when a raw partition is sealed."""

import math
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from attrs import field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions.partition import PartitionKey, day
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import field_conflict
from tileferry.domain.tiles import BlobRef, DownloadTally, FreshnessLabel, TileId
from tileferry.domain.tiles.area import Area
from tileferry.domain.validation import (
    as_float,
    aware,
    check_fields,
    format_field_name,
    instance,
    integer,
    name,
    positive,
    sha256_hex,
)

if TYPE_CHECKING:
    from attrs import Attribute


def _check_utc(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    aware(instance, attribute, value)
    if not isinstance(value, datetime) or value.utcoffset() != timedelta(0):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be a time in UTC",
        )


@frozen(kw_only=True)
class PartitionHeader:
    """The partition and run that a raw partition belongs to, and the downloader's counts."""

    key: PartitionKey = field(validator=instance(PartitionKey))
    run_id: RunId = field(validator=name)
    area: Area = field(validator=instance(Area))
    tiles_listed: int = field(validator=integer(0))
    """The number of tiles of the area that the provider listed."""
    tally: DownloadTally = field(validator=instance(DownloadTally))
    """For a resumed run, the counts of its last part; tiles stored earlier count as downloaded."""
    sealed_at: datetime = field(validator=_check_utc)
    imagery_date: date | None = field(default=None, validator=validators.optional(day))
    """The date that was requested from the provider; ``None`` for its current imagery."""

    def __attrs_post_init__(self) -> None:
        if self.tally.tiles_accounted > self.tiles_listed:
            raise field_conflict(
                self, "tally", f"accounts for more than the {self.tiles_listed} listed tiles"
            )


@frozen(kw_only=True, weakref_slot=False)
class ManifestEntry:
    """One tile of a raw partition: the location of its bytes, and the provider's metadata."""

    tile_id: TileId
    blob: BlobRef
    resolution_m_per_px: float = field(converter=as_float)
    produced_at: datetime
    freshness: FreshnessLabel
    """The label given when the tile was stored."""

    def __attrs_post_init__(self) -> None:
        if not (
            type(self.tile_id) is TileId
            and type(self.blob) is BlobRef
            and type(self.resolution_m_per_px) is float
            and 0.0 < self.resolution_m_per_px < math.inf
            and type(self.produced_at) is datetime
            and self.produced_at.tzinfo is UTC
            and type(self.freshness) is FreshnessLabel
        ):
            check_fields(self, _ENTRY_CHECKS)


_ENTRY_CHECKS = {
    "tile_id": instance(TileId),
    "blob": instance(BlobRef),
    "resolution_m_per_px": positive,
    "produced_at": _check_utc,
    "freshness": instance(FreshnessLabel),
}


@frozen(kw_only=True)
class SealedPartition:
    """Identifies a sealed raw partition, with the digest to verify that it has not changed."""

    key: PartitionKey = field(validator=instance(PartitionKey))
    run_id: RunId = field(validator=name)
    tiles: int = field(validator=integer(0))
    size_bytes: int = field(validator=integer(0))
    """The total size of its tiles."""
    manifest_sha256: str = field(validator=sha256_hex)
    """The digest of the manifest's content, which includes the digest of each tile."""
    sealed_at: datetime = field(validator=_check_utc)

    @property
    def subject(self) -> str:
        """The name of the raw partition in messages."""
        return f"raw partition {self.key}/{self.run_id}"


@frozen(kw_only=True)
class PartitionDamage:
    """A difference between a sealed partition and its manifest."""

    subject: str
    """The id of the tile, or the name of the file."""
    problem: str
