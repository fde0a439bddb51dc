"""Table definitions for tiles, cache, envelopes, audit log and idempotency records.

Migrations create the tables; a test compares them with these definitions.
"""

from enum import StrEnum

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from tileferry.domain.tiles import FreshnessLabel, SectorClass, VotingStatus
from tileferry.domain.tiles.refusal import Gate

metadata = MetaData()
NAME = Text(collation="C")
"""Sorts by byte value, as Python does."""


def enum_check(column: str, values: type[StrEnum]) -> str:
    """Return a CHECK condition that limits a column to an enumeration's values."""
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"


def timestamp_column(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


tiles = Table(
    "tiles",
    metadata,
    Column("source", NAME, nullable=False),
    Column("zoom", SmallInteger, nullable=False),
    Column("x", Integer, nullable=False),
    Column("y", Integer, nullable=False),
    Column("flight_id", NAME, nullable=False),
    timestamp_column("produced_at"),
    Column("resolution_m_per_px", Double, nullable=False),
    Column("sector_class", Text, nullable=False),
    Column("freshness", Text, nullable=False),
    Column("voting_status", Text, nullable=False),
    Column("segment", Integer, nullable=False),
    Column("byte_offset", BigInteger, nullable=False),
    Column("byte_length", Integer, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    timestamp_column("stored_at"),
    timestamp_column("last_used_at"),
    timestamp_column("uploaded_at", nullable=True),
    Column("upload_attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_attempt", NAME),
    timestamp_column("confirmed_at", nullable=True),
    Column("etag", Text),
    Column("last_modified", Text),
    PrimaryKeyConstraint("source", "zoom", "x", "y", name="tiles_pkey"),
    CheckConstraint("zoom BETWEEN 0 AND 21", name="tiles_zoom"),
    CheckConstraint("x >= 0 AND x < (1 << zoom::integer)", name="tiles_x"),
    CheckConstraint("y >= 0 AND y < (1 << zoom::integer)", name="tiles_y"),
    CheckConstraint(
        "resolution_m_per_px > 0 AND resolution_m_per_px < 'infinity'", name="tiles_resolution"
    ),
    CheckConstraint(enum_check("sector_class", SectorClass), name="tiles_sector_class"),
    CheckConstraint(enum_check("freshness", FreshnessLabel), name="tiles_freshness"),
    CheckConstraint(enum_check("voting_status", VotingStatus), name="tiles_voting_status"),
    CheckConstraint("segment > 0 AND byte_offset >= 0 AND byte_length >= 0", name="tiles_blob"),
    CheckConstraint("octet_length(sha256) = 32", name="tiles_sha256"),
    CheckConstraint("upload_attempts >= 0", name="tiles_upload_attempts"),
    # Uploaded and rejected tiles have an upload time; pending and given-up ones have none. A
    # trusted tile may have either.
    CheckConstraint(
        "CASE WHEN voting_status IN ('pending', 'upload_giveup') THEN uploaded_at IS NULL"
        " WHEN voting_status IN ('uploaded', 'rejected') THEN uploaded_at IS NOT NULL"
        " ELSE true END",
        name="tiles_uploaded_at",
    ),
    Index("tiles_by_place", "zoom", "x", "y"),
    Index("tiles_by_blob", "segment", "byte_offset", unique=True),
    Index("tiles_by_use", "last_used_at"),
    Index(
        "tiles_given_up",
        "flight_id",
        "source",
        "zoom",
        "x",
        "y",
        postgresql_where=text("voting_status = 'upload_giveup'"),
    ),
    Index(
        "tiles_pending",
        "flight_id",
        "source",
        "zoom",
        "x",
        "y",
        postgresql_where=text("voting_status = 'pending'"),
    ),
)

absent_tiles = Table(
    "absent_tiles",
    metadata,
    Column("source", NAME, nullable=False),
    Column("zoom", SmallInteger, nullable=False),
    Column("x", Integer, nullable=False),
    Column("y", Integer, nullable=False),
    timestamp_column("absent_at"),
    PrimaryKeyConstraint("source", "zoom", "x", "y", name="absent_tiles_pkey"),
    CheckConstraint("zoom BETWEEN 0 AND 21", name="absent_tiles_zoom"),
    CheckConstraint("x >= 0 AND x < (1 << zoom::integer)", name="absent_tiles_x"),
    CheckConstraint("y >= 0 AND y < (1 << zoom::integer)", name="absent_tiles_y"),
)
refused_tiles = Table(
    "refused_tiles",
    metadata,
    Column("source", NAME, nullable=False),
    Column("zoom", SmallInteger, nullable=False),
    Column("x", Integer, nullable=False),
    Column("y", Integer, nullable=False),
    Column("sector_class", Text, nullable=False),
    Column("gate", Text, nullable=False),
    timestamp_column("produced_at"),
    Column("resolution_m_per_px", Double, nullable=False),
    timestamp_column("refused_at"),
    PrimaryKeyConstraint("source", "zoom", "x", "y", "sector_class", name="refused_tiles_pkey"),
    CheckConstraint("zoom BETWEEN 0 AND 21", name="refused_tiles_zoom"),
    CheckConstraint("x >= 0 AND x < (1 << zoom::integer)", name="refused_tiles_x"),
    CheckConstraint("y >= 0 AND y < (1 << zoom::integer)", name="refused_tiles_y"),
    CheckConstraint(enum_check("sector_class", SectorClass), name="refused_tiles_sector_class"),
    CheckConstraint(enum_check("gate", Gate), name="refused_tiles_gate"),
    CheckConstraint(
        "resolution_m_per_px > 0 AND resolution_m_per_px < 'infinity'",
        name="refused_tiles_resolution",
    ),
)

tile_origins = Table(
    "tile_origins",
    metadata,
    Column("source", NAME, nullable=False),
    Column("zoom", SmallInteger, nullable=False),
    Column("x", Integer, nullable=False),
    Column("y", Integer, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    Column("origin", NAME, nullable=False),
    PrimaryKeyConstraint("source", "zoom", "x", "y", name="tile_origins_pkey"),
    CheckConstraint("zoom BETWEEN 0 AND 21", name="tile_origins_zoom"),
    CheckConstraint("x >= 0 AND x < (1 << zoom::integer)", name="tile_origins_x"),
    CheckConstraint("y >= 0 AND y < (1 << zoom::integer)", name="tile_origins_y"),
    CheckConstraint("length(sha256) = 32", name="tile_origins_sha256"),
    CheckConstraint("origin <> ''", name="tile_origins_origin"),
)

flight_pins = Table(
    "flight_pins",
    metadata,
    Column("flight_id", NAME, nullable=False, primary_key=True),
    timestamp_column("pinned_at"),
)

flights = Table(
    "flights",
    metadata,
    Column("flight_id", NAME, nullable=False, primary_key=True),
    timestamp_column("created_at"),
    timestamp_column("expires_at", nullable=True),
)

flight_areas = Table(
    "flight_areas",
    metadata,
    Column("area_id", BigInteger, Identity(always=True), nullable=False, primary_key=True),
    Column(
        "flight_id",
        NAME,
        ForeignKey("flights.flight_id", name="flight_areas_flight", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("source", NAME, nullable=False),
    Column("bbox", NAME, nullable=False),
    Column("zoom_levels", ARRAY(SmallInteger), nullable=False),
    Column("sector_class", Text, nullable=False),
    timestamp_column("added_at"),
    Column("shape", NAME),
    Column("shape_digest", NAME, nullable=False, server_default=text("''")),
    UniqueConstraint(
        "flight_id",
        "source",
        "bbox",
        "zoom_levels",
        "sector_class",
        "shape_digest",
        name="flight_areas_once",
    ),
    CheckConstraint("(shape IS NULL) = (shape_digest = '')", name="flight_areas_shape"),
    CheckConstraint(enum_check("sector_class", SectorClass), name="flight_areas_sector_class"),
)

# The tiles of an area as rectangles, both ends included: SQL can test whether a tile is inside.
flight_spans = Table(
    "flight_spans",
    metadata,
    Column(
        "area_id",
        BigInteger,
        ForeignKey("flight_areas.area_id", name="flight_spans_area", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("source", NAME, nullable=False),
    Column("zoom", SmallInteger, nullable=False),
    Column("x_min", Integer, nullable=False),
    Column("x_max", Integer, nullable=False),
    Column("y_min", Integer, nullable=False),
    Column("y_max", Integer, nullable=False),
    PrimaryKeyConstraint("area_id", "zoom", "x_min", "y_min", name="flight_spans_pkey"),
    CheckConstraint(
        "0 <= x_min AND x_min <= x_max AND x_max < (1 << zoom::integer)"
        " AND 0 <= y_min AND y_min <= y_max AND y_max < (1 << zoom::integer)",
        name="flight_spans_range",
    ),
    Index("flight_spans_by_place", "source", "zoom", "x_min"),
    Index(
        "flight_spans_by_box",
        text("box(point(x_min, y_min), point(x_max, y_max))"),
        postgresql_using="gist",
    ),
)

cache_reservations = Table(
    "cache_reservations",
    metadata,
    Column("reservation_id", NAME, nullable=False, primary_key=True),
    Column("reserved_bytes", BigInteger, nullable=False),
    timestamp_column("expires_at"),
    CheckConstraint("reserved_bytes >= 0", name="cache_reservations_bytes"),
)

session_commits = Table(
    "session_commits",
    metadata,
    Column("session", BigInteger, nullable=False, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    timestamp_column("committed_at"),
    PrimaryKeyConstraint("session", name="session_commits_pkey"),
    CheckConstraint("number > 0", name="session_commits_number"),
)

bound_cache = Table(
    "bound_cache",
    metadata,
    Column("one_row", Boolean, nullable=False, primary_key=True, server_default=text("true")),
    Column("cache_id", NAME, nullable=False),
    Column("place", NAME, nullable=False),
    timestamp_column("bound_at"),
    CheckConstraint("one_row", name="bound_cache_one_row"),
    CheckConstraint("cache_id ~ '^[0-9a-f]{32}$'", name="bound_cache_id"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("sequence", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    Column("previous_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("event_type", NAME, nullable=False),
    timestamp_column("occurred_at"),
    Column("correlation_id", NAME),
    Column("subject", NAME),
    Column("group_id", Uuid),
    CheckConstraint("sequence > 0", name="audit_log_sequence"),
    # Indexed by hash: a value can exceed the maximum size of an index entry.
    Index(
        "audit_log_by_correlation",
        text("hashtextextended(correlation_id, 0)"),
        "sequence",
        postgresql_where=text("correlation_id IS NOT NULL"),
    ),
    Index(
        "audit_log_by_subject",
        text("hashtextextended(subject, 0)"),
        "sequence",
        postgresql_where=text("subject IS NOT NULL"),
    ),
    Index(
        "audit_log_by_group",
        "group_id",
        unique=True,
        postgresql_where=text("group_id IS NOT NULL"),
    ),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("one_row", Boolean, nullable=False, primary_key=True, server_default=text("true")),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    CheckConstraint("one_row", name="audit_head_one_row"),
    CheckConstraint("sequence >= 0 AND octet_length(hash) = 32", name="audit_head_place"),
)

idempotency_records = Table(
    "idempotency_records",
    metadata,
    # A hash, since a key can exceed the maximum size of an index entry.
    Column("key_sha256", LargeBinary, nullable=False, primary_key=True),
    Column("key", NAME, nullable=False),
    Column("fingerprint", NAME, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", NAME, nullable=False),
    Column("state", Text, nullable=False),
    timestamp_column("lease_expires_at", nullable=True),
    Column("result", LargeBinary),
    Column("error_type", Text),
    Column("error_message", Text),
    timestamp_column("recorded_at", nullable=True),
    timestamp_column("expires_at", nullable=True),
    CheckConstraint("octet_length(key_sha256) = 32", name="idempotency_records_key"),
    CheckConstraint("epoch > 0", name="idempotency_records_epoch"),
    CheckConstraint("expires_at > recorded_at", name="idempotency_records_expiry"),
    # Each state uses its own columns; the columns of other states are NULL.
    CheckConstraint(
        "CASE state"
        " WHEN 'in_progress' THEN lease_expires_at IS NOT NULL"
        " AND num_nonnulls(result, error_type, error_message, recorded_at, expires_at) = 0"
        " WHEN 'completed' THEN num_nulls(result, recorded_at) = 0"
        " AND num_nonnulls(lease_expires_at, error_type, error_message) = 0"
        " WHEN 'failed' THEN num_nulls(error_type, error_message, recorded_at) = 0"
        " AND num_nonnulls(lease_expires_at, result) = 0"
        " ELSE false END",
        name="idempotency_records_state",
    ),
    Index(
        "idempotency_records_by_expiry",
        "expires_at",
        postgresql_where=text("expires_at IS NOT NULL"),
    ),
    Index(
        "idempotency_records_by_lease",
        "lease_expires_at",
        postgresql_where=text("lease_expires_at IS NOT NULL"),
    ),
)

upload_envelopes = Table(
    "upload_envelopes",
    metadata,
    Column("key", NAME, nullable=False, primary_key=True),
    Column("flight_id", NAME, nullable=False),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("manifest", LargeBinary, nullable=False),
    Column("body_sha256", LargeBinary, nullable=False),
    Column("signed_at", NAME, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("locations", ARRAY(BigInteger)),
    Column("rejected", ARRAY(Boolean)),
    CheckConstraint("octet_length(body_sha256) = 32", name="upload_envelopes_body"),
    CheckConstraint("octet_length(public_key) = 32", name="upload_envelopes_public_key"),
    CheckConstraint("octet_length(signature) = 64", name="upload_envelopes_signature"),
    Index("upload_envelopes_by_flight", "flight_id", "number"),
)
