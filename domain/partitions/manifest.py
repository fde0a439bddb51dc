"""What a raw partition holds: the values of its manifest, which is written when it is sealed."""

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions.partition import PartitionKey
from tileferry.domain.runs import RunId
from tileferry.domain.status_fields import field_conflict
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
    """Whose the raw partition is, and what the downloader said when it was done."""

    key: PartitionKey = field(validator=instance(PartitionKey))
    run_id: RunId = field(validator=name)
    area: Area = field(validator=instance(Area))
    tiles_listed: int = field(validator=integer(0))
    """How many tiles of the area the provider says it has."""
    tally: DownloadTally = field(validator=instance(DownloadTally))
    """Of a run that was resumed, its last part counts: what was stored before is downloaded."""
    sealed_at: datetime = field(validator=_check_utc)

    def __attrs_post_init__(self) -> None:
        if self.tally.tiles_accounted > self.tiles_listed:
            raise field_conflict(
                self, "tally", f"accounts for more than {self.tiles_listed} listed tiles"
            )


@frozen(kw_only=True, weakref_slot=False)
class ManifestEntry:
    """One tile of a raw partition: where its bytes are, and what the provider said of it."""

    tile_id: TileId
    blob: BlobRef
    resolution_m_per_px: float = field(converter=as_float)
    produced_at: datetime
    freshness: FreshnessLabel
    """As of the moment when it was stored."""

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
    """Names a raw partition that will not change any more, and how to tell that it has not."""

    key: PartitionKey = field(validator=instance(PartitionKey))
    run_id: RunId = field(validator=name)
    tiles: int = field(validator=integer(0))
    size_bytes: int = field(validator=integer(0))
    """Of its tiles."""
    manifest_sha256: str = field(validator=sha256_hex)
    """Of all that the manifest says; it names the digest of each tile."""
    sealed_at: datetime = field(validator=_check_utc)

    @property
    def subject(self) -> str:
        """How messages name it."""
        return f"raw partition {self.key}/{self.run_id}"


@frozen(kw_only=True)
class PartitionDamage:
    """Something in a sealed partition that is not as it was sealed."""

    subject: str
    """A tile by its id, or a file by its name."""
    problem: str
