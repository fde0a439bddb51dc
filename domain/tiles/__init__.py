"""Tiles: ids, areas, gates, the cache budget, readiness, and download and upload reports."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.domain.tiles.area import Area, area_to_json, parse_area
    from tileferry.domain.tiles.bbox import MERCATOR_LAT_MAX, BBox
    from tileferry.domain.tiles.capture import (
        FACTS_BYTES_MAX,
        CaptureFacts,
        build_capture_source,
        check_captured_at,
        compute_ground_resolution,
        is_system_file,
        parse_captured_tile,
        parse_tile_path,
    )
    from tileferry.domain.tiles.coverage import (
        TileCoverage,
        TileSet,
        compute_tile_ranges,
    )
    from tileferry.domain.tiles.download import (
        DownloadBatchReport,
        DownloadOutcome,
        DownloadRequest,
        DownloadTally,
        TileFailures,
        TileSummary,
        determine_download_outcome,
    )
    from tileferry.domain.tiles.envelope import (
        Batch,
        EnvelopeTile,
        SignedEnvelope,
        build_signing_input,
    )
    from tileferry.domain.tiles.eviction import (
        KEPT_STATUSES,
        CachedTile,
        CacheSpace,
        DiskRoom,
        EvictionResult,
        PrunedTiles,
        PruneRule,
        compute_default_budget_bytes,
        compute_default_reserve_bytes,
        plan_eviction,
    )
    from tileferry.domain.tiles.flight import (
        Flight,
        FlightArea,
        FlightStatus,
        FlightUsage,
        OperatorNote,
    )
    from tileferry.domain.tiles.flight_record import FlightRecord, FlightState
    from tileferry.domain.tiles.gates import (
        FreshnessLabel,
        FreshnessRule,
        FreshnessVerdict,
        ResolutionGate,
        ResolutionVerdict,
        SectorClass,
    )
    from tileferry.domain.tiles.limits import AREA_TILES_MAX, BATCH_TILES_MAX, TILE_BYTES_MAX
    from tileferry.domain.tiles.listing import (
        ListingLimits,
        ListingPage,
        ListingProgress,
    )
    from tileferry.domain.tiles.mercator import tile_at, tile_bounds
    from tileferry.domain.tiles.metadata import (
        BlobLocation,
        BlobRef,
        NewTile,
        NewTiles,
        TileMetadata,
        TileValidators,
        replaces,
    )
    from tileferry.domain.tiles.picture import (
        Picture,
        PictureError,
        PictureFlaw,
        detect_image_kind,
        inspect_picture,
    )
    from tileferry.domain.tiles.provider_faults import (
        ProviderFault,
        classify_fault,
        classify_provider_error,
        describe_fault,
        fault_from_status,
        find_overload,
        may_improve,
        should_abort_download,
    )
    from tileferry.domain.tiles.readiness import (
        Defect,
        Flaw,
        FlightStandard,
        ReadinessCount,
        ReadinessVerdict,
        judge_area,
    )
    from tileferry.domain.tiles.readiness_map import FlawRegion, MapPreview, ReadinessMap
    from tileferry.domain.tiles.request_limits import RequestSpacing, SendingLimits
    from tileferry.domain.tiles.shape import Place, Shape
    from tileferry.domain.tiles.tile_id import ZOOM_MAX, TileId
    from tileferry.domain.tiles.tile_range import TileRange
    from tileferry.domain.tiles.tile_server import TileServer
    from tileferry.domain.tiles.tile_template import TileTemplate
    from tileferry.domain.tiles.upload import (
        UploadBatchReport,
        UploadOutcome,
        UploadPasses,
        UploadRequest,
        build_damaged_attempt,
        compute_next_retry_hint,
    )
    from tileferry.domain.tiles.upload_status import PerTileStatus, TileStatuses, TileUploadStatus
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
    "BBox",
    "Batch",
    "BlobLocation",
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
    "FlawRegion",
    "Flight",
    "FlightArea",
    "FlightRecord",
    "FlightStandard",
    "FlightState",
    "FlightStatus",
    "FlightUsage",
    "FreshnessLabel",
    "FreshnessRule",
    "FreshnessVerdict",
    "ListingLimits",
    "ListingPage",
    "ListingProgress",
    "MapPreview",
    "NewTile",
    "NewTiles",
    "OperatorNote",
    "PerTileStatus",
    "Picture",
    "PictureError",
    "PictureFlaw",
    "Place",
    "ProviderFault",
    "PruneRule",
    "PrunedTiles",
    "ReadinessCount",
    "ReadinessMap",
    "ReadinessVerdict",
    "RequestSpacing",
    "ResolutionGate",
    "ResolutionVerdict",
    "SectorClass",
    "SendingLimits",
    "Shape",
    "SignedEnvelope",
    "TileCoverage",
    "TileFailures",
    "TileId",
    "TileMetadata",
    "TileRange",
    "TileServer",
    "TileSet",
    "TileStatuses",
    "TileSummary",
    "TileTemplate",
    "TileUploadStatus",
    "TileValidators",
    "UploadBatchReport",
    "UploadOutcome",
    "UploadPasses",
    "UploadRequest",
    "VotingStatus",
    "area_to_json",
    "build_capture_source",
    "build_damaged_attempt",
    "build_signing_input",
    "check_captured_at",
    "classify_fault",
    "classify_provider_error",
    "compute_default_budget_bytes",
    "compute_default_reserve_bytes",
    "compute_ground_resolution",
    "compute_next_retry_hint",
    "compute_tile_ranges",
    "describe_fault",
    "detect_image_kind",
    "determine_download_outcome",
    "fault_from_status",
    "find_overload",
    "inspect_picture",
    "is_system_file",
    "judge_area",
    "may_improve",
    "move_status",
    "parse_area",
    "parse_captured_tile",
    "parse_tile_path",
    "plan_eviction",
    "replaces",
    "should_abort_download",
    "should_give_up",
    "tile_at",
    "tile_bounds",
]
