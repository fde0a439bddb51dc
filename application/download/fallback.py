"""Two sources in order: the second delivers the tiles that the first does not have."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256

from attrs import define, evolve, field, frozen

from tileferry.application.ports.provider import (
    FetchedTile,
    FetchOutcome,
    FetchResult,
    TileFetches,
    TileProvider,
    TileRequest,
    UnchangedTile,
)
from tileferry.application.ports.tiles import AbsentTiles, TileOrigins
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import BBox, ListingPage, TileCoverage, TileId, TileValidators
from tileferry.domain.tiles.origin import TileOrigin

_TURN_S = 0.01
"""How long to wait for one source while the other is busy as well."""


@frozen(kw_only=True)
class FallbackTileProvider:
    """Uses the listing and the name of the primary source; labels tiles from the secondary.

    The secondary must state date and resolution of each tile: those of the listing are the
    primary's.
    """

    primary: TileProvider
    secondary: TileProvider

    @property
    def source(self) -> str:
        """The source of the tiles in the cache, whoever delivered them."""
        return self.primary.source

    @property
    def key_hash(self) -> str:
        """A hash that distinguishes the accounts at both, and their order."""
        both = f"{self.primary.key_hash}|{self.secondary.key_hash}"
        return sha256(both.encode()).hexdigest()

    @property
    def lists_versions(self) -> bool:
        return self.primary.lists_versions

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Return one page of the primary's listing."""
        return self.primary.fetch_listing_page(bbox, zoom_levels, cursor)

    def fetch_tile(
        self, tile_id: TileId, *, unless: TileValidators | None = None
    ) -> FetchedTile | UnchangedTile:
        """Return one tile, from the first source that has it."""
        try:
            return self.primary.fetch_tile(tile_id, unless=unless)
        except SatelliteProviderError as error:
            if not _is_hole(error):
                raise
        return self.label(self.secondary.fetch_tile(tile_id))

    def open_fetches(self) -> TileFetches:
        """Return a way to fetch many tiles, several at a time."""
        return FallbackFetches(self, self.primary.open_fetches(), self.secondary.open_fetches())

    def label(self, tile: FetchedTile | UnchangedTile) -> FetchedTile | UnchangedTile:
        """Return a tile of the secondary with its origin."""
        if isinstance(tile, UnchangedTile):
            return tile
        return evolve(tile, origin=self.secondary.source)


@define(eq=False)
class FallbackFetches:
    """Requests each tile from the primary, and holes from the secondary."""

    _provider: FallbackTileProvider
    _primary: TileFetches
    _secondary: TileFetches
    _primary_busy: int = field(default=0, init=False)
    _holes: dict[int, tuple[TileRequest, TileRequest]] = field(factory=dict, init=False)
    """Requests to the secondary, by identity, with what was asked for."""

    def start(self, request: TileRequest) -> None:
        """Begin to fetch a tile."""
        self._primary_busy += 1
        self._primary.start(request)

    def wait(self, timeout_s: float) -> Sequence[FetchOutcome]:
        """Return the tiles and errors that have arrived."""
        outcomes: list[FetchOutcome] = []
        both = self._primary_busy and self._holes
        if self._primary_busy:
            for request, result in self._primary.wait(_TURN_S if both else timeout_s):
                self._primary_busy -= 1
                if isinstance(result, SatelliteProviderError) and _is_hole(result):
                    self._ask_secondary(request)
                else:
                    outcomes.append((request, result))
        if self._holes:
            # Answers that have arrived must not wait for others.
            wait_s = 0.0 if outcomes else _TURN_S if both else timeout_s
            for asked, result in self._secondary.wait(wait_s):
                _, request = self._holes.pop(id(asked))
                outcomes.append((request, self._label(result)))
        return outcomes

    def _ask_secondary(self, request: TileRequest) -> None:
        """Request a tile without a condition: the stored version may be the primary's."""
        asked = TileRequest(request.tile_id, None)
        self._holes[id(asked)] = (asked, request)
        self._secondary.start(asked)

    def _label(self, result: FetchResult) -> FetchResult:
        return result if isinstance(result, Exception) else self._provider.label(result)

    def close(self) -> None:
        """Abort the fetches that have not ended."""
        self._primary.close()
        self._secondary.close()


def record_origins(store: TileOrigins | None, results: Iterable[FetchResult]) -> None:
    """Record where tiles came from, before they are visible, so that none is without its label.

    A record of a tile that is then not stored means nothing: it names the version.
    """
    if store is None:
        return
    found = [
        TileOrigin(
            tile_id=tile.tile_id,
            sha256=(tile.sha256 or sha256(tile.content).digest()).hex(),
            origin=tile.origin,
        )
        for tile in results
        if isinstance(tile, FetchedTile) and tile.origin is not None
    ]
    if found:
        store.record_origins(found)


def _is_hole(error: SatelliteProviderError) -> bool:
    return error.fault is not None and error.fault.is_missing_tile


@frozen(kw_only=True)
class FallbackAbsentTiles:
    """A tile is absent if it was absent at both: a new secondary is asked for old holes at once."""

    inner: AbsentTiles
    secondary: str
    """The source of the secondary."""

    def find_absent(self, tile_ids: Sequence[TileId]) -> Mapping[TileId, datetime]:
        """Return when each of these tiles was last absent at both, if it was."""
        first = self.inner.find_absent(tile_ids)
        second = self.inner.find_absent([self._rename(tile_id) for tile_id in first])
        return {
            tile_id: min(at, second[self._rename(tile_id)])
            for tile_id, at in first.items()
            if self._rename(tile_id) in second
        }

    def query_absent(
        self, coverage: TileCoverage, *, source: str
    ) -> Iterator[tuple[TileId, datetime]]:
        """Yield the tiles of an area that were absent at the source."""
        return self.inner.query_absent(coverage, source=source)

    def record_absent(self, tile_ids: Sequence[TileId], *, at: datetime) -> None:
        """Record durably that neither had these tiles at a time."""
        self.inner.record_absent([*tile_ids, *map(self._rename, tile_ids)], at=at)

    def forget_absent(self, tile_ids: Sequence[TileId]) -> None:
        """Forget durably that these tiles were absent."""
        self.inner.forget_absent([*tile_ids, *map(self._rename, tile_ids)])

    def _rename(self, tile_id: TileId) -> TileId:
        return evolve(tile_id, source=self.secondary)
