"""Tiles that were given up: what is known of them, for the human who decides."""

from collections.abc import Iterable, Iterator

from attrs import define, frozen

from tileferry.application.ports.fdr import FdrClient
from tileferry.application.transfers.upload_retry import GIVEUP_KIND
from tileferry.domain.tiles import TileMetadata


@frozen(kw_only=True)
class Giveup:
    """A tile, and what was recorded when it was given up."""

    tile: TileMetadata
    reason: str | None
    """What the provider said last; the recorder is bounded, so it may be gone."""
    given_up_at_s: float | None


@define(kw_only=True)
class GiveupReader:
    """Joins the tiles of the cache with the flight data recorder. It changes neither."""

    fdr_client: FdrClient

    def giveups(self, tiles: Iterable[TileMetadata]) -> Iterator[Giveup]:
        """Yield what is known of tiles that were given up."""
        records = {
            record.payload.get("tile_id"): record
            for record in self.fdr_client.records()
            if record.kind == GIVEUP_KIND
        }
        for tile in tiles:
            record = records.get(str(tile.tile_id))
            said = None if record is None else record.payload.get("last_rejection_reason")
            yield Giveup(
                tile=tile,
                reason=said if isinstance(said, str) else None,
                given_up_at_s=None if record is None else record.recorded_at_s,
            )
