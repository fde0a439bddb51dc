"""Giveups: tiles whose upload was given up, the reason, and how a human can reopen them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

from attrs import define, frozen

from tileferry.application.ports.fdr import GIVEUP_KIND, FdrClient
from tileferry.application.ports.inventory import TileImages, TileInventory
from tileferry.application.ports.tiles import TileStore
from tileferry.domain.errors import InvalidStateError, NotFoundError, Remedy
from tileferry.domain.tiles import TileId, TileMetadata, VotingStatus


@frozen(kw_only=True)
class Giveup:
    """A tile that was given up, with the recorded reason."""

    tile: TileMetadata
    reason: str | None
    """The provider's last answer; ``None`` if the bounded recorder has dropped it."""
    given_up_at_s: float | None
    reopening_sql: str
    """The SQL statement with which a human reopens the tile; the product never runs it."""


@define(kw_only=True)
class GiveupReview:
    """Lists and shows giveups. It changes no tile: only a human reopens a giveup."""

    tiles: TileInventory
    tile_store: Callable[[], TileStore]
    """Opens the cache; listing does not need it."""
    images: Callable[[], TileImages]
    fdr_client: FdrClient
    build_reopening_sql: Callable[[TileId], str]

    def iter_giveups(
        self, flight_id: str | None = None, *, after: tuple[str, TileId] | None = None
    ) -> Iterator[Giveup]:
        """Yield the giveups of a flight, or of all flights; those after a flight and a tile."""
        return self._join_records(self.tiles.find_given_up(flight_id, after=after))

    def get_giveup(self, tile_id: TileId) -> Giveup:
        """Return one giveup; raise if the tile is not given up."""
        tile = self.tiles.get_metadata(tile_id)
        if tile is None:
            raise NotFoundError(what="tile", name=str(tile_id), remedy=Remedy.LIST_GIVEUPS)
        if tile.voting_status is not VotingStatus.UPLOAD_GIVEUP:
            raise InvalidStateError(
                subject=f"tile {tile_id}",
                problem=f"is {tile.voting_status}, not given up",
                remedy=Remedy.LIST_GIVEUPS,
            )
        (giveup,) = self._join_records([tile])
        return giveup

    def extract_image(self, tile_id: TileId) -> PurePath:
        """Copy a tile's image to a file that a human can open, and return its path."""
        return self.images().extract(tile_id, self.tile_store().read_tile(tile_id))

    def _join_records(self, tiles: Iterable[TileMetadata]) -> Iterator[Giveup]:
        records = {
            record.payload.get("tile_id"): record
            for record in self.fdr_client.records()
            if record.kind == GIVEUP_KIND
        }
        for tile in tiles:
            record = records.get(str(tile.tile_id))
            reason = None if record is None else record.payload.get("last_rejection_reason")
            yield Giveup(
                tile=tile,
                reason=reason if isinstance(reason, str) else None,
                given_up_at_s=None if record is None else record.recorded_at_s,
                reopening_sql=self.build_reopening_sql(tile.tile_id),
            )
