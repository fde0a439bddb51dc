"""Tiles: identity, area, gates, the cache's budget, and what downloads and uploads report."""

from tileferry.domain.tiles.bbox import MERCATOR_LAT_MAX, BBox
from tileferry.domain.tiles.blob import TILE_BYTES_MAX, BlobRef
from tileferry.domain.tiles.coverage import TileCoverage, TileRange, count_tiles, tile_ranges
from tileferry.domain.tiles.download_report import (
    DownloadBatchReport,
    DownloadOutcome,
    DownloadTally,
    download_outcome,
)
from tileferry.domain.tiles.download_request import DownloadRequest, TileSummary
from tileferry.domain.tiles.eviction import (
    KEPT_STATUSES,
    CachedTile,
    CacheSpace,
    EvictionResult,
    default_budget_bytes,
    default_reserve_bytes,
    plan_eviction,
)
from tileferry.domain.tiles.freshness import FreshnessLabel, FreshnessRule, SectorClass
from tileferry.domain.tiles.listing import (
    ListingLimits,
    ListingPage,
    ListingProgress,
    moment_of,
    parse_listing_page,
)
from tileferry.domain.tiles.mercator import tile_at, tile_bounds
from tileferry.domain.tiles.metadata import NewTile, TileMetadata, replaces
from tileferry.domain.tiles.provider_faults import (
    ProviderFault,
    class_of_error,
    class_of_fault,
    fault_of_status,
)
from tileferry.domain.tiles.resolution import ResolutionGate, ResolutionVerdict
from tileferry.domain.tiles.tile_id import ZOOM_MAX, TileId
from tileferry.domain.tiles.tile_set import AREA_TILES_MAX, TileSet
from tileferry.domain.tiles.upload import (
    PerTileStatus,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadRequest,
    next_retry_hint,
)
from tileferry.domain.tiles.upload_passes import UploadPasses, aggregate_passes
from tileferry.domain.tiles.voting import (
    MAX_PER_TILE_ATTEMPTS,
    VOTING_MOVES,
    VotingStatus,
    move_status,
    should_give_up,
)

__all__ = [
    "AREA_TILES_MAX",
    "KEPT_STATUSES",
    "MAX_PER_TILE_ATTEMPTS",
    "MERCATOR_LAT_MAX",
    "TILE_BYTES_MAX",
    "VOTING_MOVES",
    "ZOOM_MAX",
    "BBox",
    "BlobRef",
    "CacheSpace",
    "CachedTile",
    "DownloadBatchReport",
    "DownloadOutcome",
    "DownloadRequest",
    "DownloadTally",
    "EvictionResult",
    "FreshnessLabel",
    "FreshnessRule",
    "ListingLimits",
    "ListingPage",
    "ListingProgress",
    "NewTile",
    "PerTileStatus",
    "ProviderFault",
    "ResolutionGate",
    "ResolutionVerdict",
    "SectorClass",
    "TileCoverage",
    "TileId",
    "TileMetadata",
    "TileRange",
    "TileSet",
    "TileSummary",
    "TileUploadStatus",
    "UploadBatchReport",
    "UploadOutcome",
    "UploadPasses",
    "UploadRequest",
    "VotingStatus",
    "aggregate_passes",
    "class_of_error",
    "class_of_fault",
    "count_tiles",
    "default_budget_bytes",
    "default_reserve_bytes",
    "download_outcome",
    "fault_of_status",
    "moment_of",
    "move_status",
    "next_retry_hint",
    "parse_listing_page",
    "plan_eviction",
    "replaces",
    "should_give_up",
    "tile_at",
    "tile_bounds",
    "tile_ranges",
]
