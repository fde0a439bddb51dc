"""Tiles: identity, area, gates, the cache's budget, and what downloads and uploads report."""

from tileferry.domain.tiles.area import Area, area_from, area_json
from tileferry.domain.tiles.area_marks import AreaMarks, Patch, Picture
from tileferry.domain.tiles.bbox import MERCATOR_LAT_MAX, BBox
from tileferry.domain.tiles.blob import TILE_BYTES_MAX, BlobRef
from tileferry.domain.tiles.capture import (
    FACTS_BYTES_MAX,
    CaptureFacts,
    capture_source,
    captured_tile,
    check_captured_at,
    ground_resolution,
    image_kind,
    is_litter,
    tile_of_path,
)
from tileferry.domain.tiles.coverage import TileCoverage, TileRange, tile_ranges
from tileferry.domain.tiles.download_report import (
    DownloadBatchReport,
    DownloadOutcome,
    DownloadTally,
    download_outcome,
)
from tileferry.domain.tiles.download_request import DownloadRequest, TileSummary
from tileferry.domain.tiles.envelope import (
    BATCH_TILES_MAX,
    Batch,
    EnvelopeTile,
    SignedEnvelope,
    signed_lines,
)
from tileferry.domain.tiles.eviction import (
    KEPT_STATUSES,
    CachedTile,
    CacheSpace,
    DiskRoom,
    EvictionResult,
    default_budget_bytes,
    default_reserve_bytes,
    plan_eviction,
)
from tileferry.domain.tiles.flight_record import FlightRecord, FlightState
from tileferry.domain.tiles.freshness import FreshnessLabel, FreshnessRule, SectorClass
from tileferry.domain.tiles.geojson import bbox_of_geojson
from tileferry.domain.tiles.listing import (
    ListingLimits,
    ListingPage,
    ListingProgress,
    parse_listing_page,
)
from tileferry.domain.tiles.mercator import tile_at, tile_bounds
from tileferry.domain.tiles.metadata import NewTile, TileMetadata, replaces
from tileferry.domain.tiles.provider_faults import (
    ProviderFault,
    class_of_error,
    class_of_fault,
    ends_download,
    fault_of_status,
)
from tileferry.domain.tiles.readiness import (
    Defect,
    Flaw,
    FlightStandard,
    ReadinessCount,
    Verdict,
    judge_area,
)
from tileferry.domain.tiles.request_spacing import RequestSpacing
from tileferry.domain.tiles.resolution import ResolutionGate, ResolutionVerdict
from tileferry.domain.tiles.sending import SendingLimits
from tileferry.domain.tiles.tile_id import ZOOM_MAX, TileId
from tileferry.domain.tiles.tile_server import TileServer
from tileferry.domain.tiles.tile_set import AREA_TILES_MAX, TileSet
from tileferry.domain.tiles.tile_template import TileTemplate
from tileferry.domain.tiles.upload import (
    PerTileStatus,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadRequest,
    next_retry_hint,
)
from tileferry.domain.tiles.upload_answer import parse_upload_answer
from tileferry.domain.tiles.upload_passes import UploadPasses
from tileferry.domain.tiles.voting import (
    MAX_PER_TILE_ATTEMPTS,
    VOTING_MOVES,
    VotingStatus,
    move_status,
    should_give_up,
)

__all__ = [
    "AREA_TILES_MAX",
    "BATCH_TILES_MAX",
    "FACTS_BYTES_MAX",
    "KEPT_STATUSES",
    "MAX_PER_TILE_ATTEMPTS",
    "MERCATOR_LAT_MAX",
    "TILE_BYTES_MAX",
    "VOTING_MOVES",
    "ZOOM_MAX",
    "Area",
    "AreaMarks",
    "BBox",
    "Batch",
    "BlobRef",
    "CacheSpace",
    "CachedTile",
    "CaptureFacts",
    "Defect",
    "DiskRoom",
    "DownloadBatchReport",
    "DownloadOutcome",
    "DownloadRequest",
    "DownloadTally",
    "EnvelopeTile",
    "EvictionResult",
    "Flaw",
    "FlightRecord",
    "FlightStandard",
    "FlightState",
    "FreshnessLabel",
    "FreshnessRule",
    "ListingLimits",
    "ListingPage",
    "ListingProgress",
    "NewTile",
    "Patch",
    "PerTileStatus",
    "Picture",
    "ProviderFault",
    "ReadinessCount",
    "RequestSpacing",
    "ResolutionGate",
    "ResolutionVerdict",
    "SectorClass",
    "SendingLimits",
    "SignedEnvelope",
    "TileCoverage",
    "TileId",
    "TileMetadata",
    "TileRange",
    "TileServer",
    "TileSet",
    "TileSummary",
    "TileTemplate",
    "TileUploadStatus",
    "UploadBatchReport",
    "UploadOutcome",
    "UploadPasses",
    "UploadRequest",
    "Verdict",
    "VotingStatus",
    "area_from",
    "area_json",
    "bbox_of_geojson",
    "capture_source",
    "captured_tile",
    "check_captured_at",
    "class_of_error",
    "class_of_fault",
    "default_budget_bytes",
    "default_reserve_bytes",
    "download_outcome",
    "ends_download",
    "fault_of_status",
    "ground_resolution",
    "image_kind",
    "is_litter",
    "judge_area",
    "move_status",
    "next_retry_hint",
    "parse_listing_page",
    "parse_upload_answer",
    "plan_eviction",
    "replaces",
    "should_give_up",
    "signed_lines",
    "tile_at",
    "tile_bounds",
    "tile_of_path",
    "tile_ranges",
]
