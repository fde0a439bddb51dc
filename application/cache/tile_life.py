"""The history of a tile: who needs it, what is stored, its verdicts, and its log entries."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from attrs import define, frozen

from tileferry.application.audit_reader import AuditReader, DecodedEntry
from tileferry.application.cache.map_service import MapService, MissingTile
from tileferry.application.cache.readiness import ReadinessCheck, ReadinessQuery, ReadinessReport
from tileferry.application.download.tile_fetcher import name_fetch
from tileferry.application.ports.flights import FlightAreas
from tileferry.application.ports.inventory import VerifiableStore
from tileferry.application.ports.tiles import TileOrigins
from tileferry.domain.tiles import (
    DownloadRequest,
    FlightArea,
    TileCoverage,
    TileId,
    TileMetadata,
    TileRange,
)
from tileferry.domain.tiles.map_layer import MERGED_LAYER
from tileferry.domain.tiles.origin import TileOrigin
from tileferry.domain.tiles.refusal import Refusal

NEEDS_MAX = 10
ENTRIES_MAX = 100
_SCANNED_MAX = 5_000
"""Entries of one download that are searched for a tile: retries are rare, so these are all."""


@frozen(kw_only=True)
class StoredVersion:
    """A stored tile of one source."""

    tile: TileMetadata
    problem: str | None
    """Why its bytes cannot be read as stored."""
    origin: str
    """The source that delivered it; a secondary source fills holes of the one in the tile's id."""


@frozen(kw_only=True)
class TileNeed:
    """An area of a flight that contains the tile, and how the tile is judged for it."""

    flight_id: str
    item: FlightArea
    report: ReadinessReport


@frozen(kw_only=True)
class TileLife:
    """What is known about the tile of a layer; of the merged layer, about those of all sources."""

    layer: str
    place: TileRange
    versions: Sequence[StoredVersion]
    """The freshest first."""
    missing: MissingTile | None
    """Why nothing is stored, if so."""
    absent: Mapping[TileId, datetime]
    """When the provider last did not have the tile."""
    refusals: Sequence[Refusal]
    """The last refusal for each sector."""
    needs: Sequence[TileNeed]
    entries: Sequence[DecodedEntry]
    """Of the audit log, oldest first: failed attempts to fetch the tile, and its giveup."""

    @property
    def name(self) -> str:
        """The place as ``z/x/y``."""
        return f"{self.place.zoom}/{self.place.x_min}/{self.place.y_min}"


@define(kw_only=True)
class TileLives:
    """The use case. It reads a few rows, each by an index, and the bytes of the tile."""

    map_service: MapService
    flights: FlightAreas
    readiness: ReadinessCheck
    tile_origins: TileOrigins
    store: VerifiableStore
    audit: AuditReader
    cache_root: PurePath
    find_key_hash: Callable[[], str | None]
    """Returns the hash of the API key, by which the log knows downloads; ``None`` if not known."""

    def read(self, layer: str, zoom: int, x: int, y: int) -> TileLife:
        """Return what is known about a tile."""
        place = TileRange(zoom=zoom, x_min=x, x_max=x, y_min=y, y_max=y)
        service = self.map_service
        rows = service.find_versions(layer, zoom, x, y)
        needs = self._find_needs(layer, place)
        sources = {row.tile_id.source for row in rows} | {need.item.source for need in needs}
        sources |= {*service.list_sources(layer)}
        tile_ids = [TileId(source=name, zoom=zoom, x=x, y=y) for name in sorted(sources)]
        origins = self.tile_origins.find_origins([row.tile_id for row in rows])
        return TileLife(
            layer=layer,
            place=place,
            versions=[
                StoredVersion(
                    tile=row,
                    problem=self.store.find_problem(row.tile_id, row.blob),
                    origin=_find_origin(row, origins.get(row.tile_id)),
                )
                for row in rows
            ],
            missing=None if rows else service.explain_missing(layer, zoom, x, y),
            absent=service.absent_tiles.find_absent(tile_ids),
            refusals=service.refused_tiles.find_refused(tile_ids),
            needs=needs,
            entries=self._find_entries(tile_ids, needs),
        )

    def _find_needs(self, layer: str, place: TileRange) -> Sequence[TileNeed]:
        service, at = self.map_service, (place.zoom, place.x_min, place.y_min)
        flights = map(self.flights.find_flight, service.find_flights(layer, *at))
        found = [
            (flight.flight_id, item)
            for flight in flights
            if flight is not None
            for item in flight.areas
            if layer in {MERGED_LAYER, item.source} and item.area.coverage.includes(place)
        ]
        return [
            TileNeed(flight_id=flight_id, item=item, report=self._judge(place, item))
            for flight_id, item in found[:NEEDS_MAX]
        ]

    def _judge(self, place: TileRange, item: FlightArea) -> ReadinessReport:
        now = datetime.fromtimestamp(self.readiness.clock.now(), UTC)
        return self.readiness.check(
            ReadinessQuery(
                coverage=TileCoverage(bbox=place.bounds, zoom_levels=[place.zoom]),
                sector=item.area.sector_class,
                now=now,
                flown_at=now,
                source=item.source,
            )
        )

    def _find_entries(
        self, tile_ids: Sequence[TileId], needs: Sequence[TileNeed]
    ) -> Sequence[DecodedEntry]:
        found = [entry for tile_id in tile_ids for entry in self.audit.find_about(str(tile_id))]
        key_hash = self.find_key_hash() if needs else None
        if key_hash is not None:
            for need in needs:
                found += self._find_fetches(need, key_hash)
        found.sort(key=lambda read: read.entry.sequence)
        return found[-ENTRIES_MAX:]

    def _find_fetches(self, need: TileNeed, key_hash: str) -> Sequence[DecodedEntry]:
        request = DownloadRequest(
            flight_id=need.flight_id, area=need.item.area, cache_root=self.cache_root
        )
        (tile_id,) = need.report.coverage.tiles(need.item.source)
        return self.audit.find_calls(
            request.get_correlation_id(key_hash), name_fetch(tile_id), scan_max=_SCANNED_MAX
        )


def _find_origin(row: TileMetadata, recorded: TileOrigin | None) -> str:
    """Return the source that delivered a stored tile; a record may be of another version."""
    if recorded is None or recorded.sha256 != row.blob.sha256:
        return row.tile_id.source
    return recorded.origin
