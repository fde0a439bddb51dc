"""Tile metadata that an archive stores with each tile."""

from datetime import UTC, datetime

from attrs import converters, field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.metadata import TileMetadata
from tileferry.domain.validation import as_float, aware, parse_datetime, positive, sha256_hex


@frozen(kw_only=True)
class TileFacts:
    """The production date, resolution and digest of a tile. Each may be missing."""

    produced_at: datetime | None = field(default=None, validator=validators.optional(aware))
    resolution_m_per_px: float | None = field(
        default=None,
        converter=converters.optional(as_float),
        validator=validators.optional(positive),
    )
    sha256: str | None = field(default=None, validator=validators.optional(sha256_hex))

    @classmethod
    def from_metadata(cls, tile: TileMetadata) -> "TileFacts":
        return cls(
            produced_at=tile.produced_at.astimezone(UTC),
            resolution_m_per_px=tile.resolution_m_per_px,
            sha256=tile.blob.sha256,
        )

    @classmethod
    def parse(cls, produced_at: object, resolution: object, sha256: object) -> "TileFacts":
        """Validate the three values from an archive."""
        if not isinstance(produced_at, str | None):
            raise InvalidValueError(
                field="produced_at", value=produced_at, problem="must be a time in text"
            )
        if isinstance(resolution, bool) or not isinstance(resolution, int | float | None):
            raise InvalidValueError(
                field="resolution_m_per_px", value=resolution, problem="must be a number"
            )
        return cls(
            produced_at=None
            if produced_at is None
            else parse_datetime(produced_at, field="produced_at"),
            resolution_m_per_px=resolution,
            sha256=sha256,  # type: ignore[arg-type]  # the validator checks it
        )

    def to_texts(self) -> tuple[str | None, float | None, str | None]:
        """Return the three values in the form that ``parse`` accepts."""
        moment = self.produced_at
        return None if moment is None else moment.isoformat(), self.resolution_m_per_px, self.sha256
