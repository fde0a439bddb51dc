"""What a provider is told before it starts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from attrs import converters, field, frozen, validators

from tileferry.domain.checks import as_float, aware, integer, positive, text
from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.capture import ground_resolution
from tileferry.entrypoints.provider.faults.plan import Rule
from tileferry.entrypoints.provider.imagery import ESTIMATED_BYTES
from tileferry.entrypoints.provider.listing import TileFacts

DEFAULT_M_PER_PX: float | None = 0.6
PAGE_SIZE_MAX = 100_000
_AGE = timedelta(days=30)


def recent() -> datetime:
    """Return midnight, thirty days ago: the same for every start on one day."""
    return (datetime.now(UTC) - _AGE).replace(hour=0, minute=0, second=0, microsecond=0)


@frozen(kw_only=True)
class ProviderSettings:
    """Everything but where it listens."""

    api_key: str = field(repr=False, validator=text)
    resolution_m_per_px: float | None = field(
        default=DEFAULT_M_PER_PX,
        converter=converters.optional(as_float),
        validator=validators.optional(positive),
    )
    """What every tile is said to have; none for what its zoom and latitude give."""
    produced_at: datetime = field(factory=recent, validator=aware)
    page_size: int = field(default=1_000, validator=integer(1, PAGE_SIZE_MAX))
    upload_bytes_max: int = field(default=128 * 1024 * 1024, validator=integer(1))
    rules: tuple[Rule, ...] = ()
    seed: int = field(default=0, validator=integer(0))
    record: Path | None = None

    def facts(self, tile: TileId) -> TileFacts:
        """Return what is to be said of a tile."""
        resolution = self.resolution_m_per_px
        return TileFacts(
            tile=tile,
            produced_at=self.produced_at,
            resolution_m_per_px=_to_the_centimetre(tile) if resolution is None else resolution,
            estimated_bytes=ESTIMATED_BYTES,
        )


def _to_the_centimetre(tile: TileId) -> float:
    return max(round(ground_resolution(tile), 2), 0.01)
