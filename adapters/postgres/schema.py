"""The tables as the code sees them. Migrations make them; a test finds any difference."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)

from tileferry.domain.tiles import FreshnessLabel, SectorClass, VotingStatus

metadata = MetaData()
_NAME = Text(collation="C")
"""Ordered by its bytes, as Python does it."""


def _one_of(column: str, values: type[FreshnessLabel | SectorClass | VotingStatus]) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"


def _moment(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


tiles = Table(
    "tiles",
    metadata,
    Column("source", _NAME, nullable=False),
    Column("zoom", SmallInteger, nullable=False),
    Column("x", Integer, nullable=False),
    Column("y", Integer, nullable=False),
    Column("flight_id", _NAME, nullable=False),
    _moment("produced_at"),
    Column("resolution_m_per_px", Double, nullable=False),
    Column("sector_class", Text, nullable=False),
    Column("freshness", Text, nullable=False),
    Column("voting_status", Text, nullable=False),
    Column("segment", Integer, nullable=False),
    Column("byte_offset", BigInteger, nullable=False),
    Column("byte_length", Integer, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    _moment("stored_at"),
    _moment("last_used_at"),
    _moment("uploaded_at", nullable=True),
    Column("upload_attempts", Integer, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("source", "zoom", "x", "y", name="tiles_pkey"),
    CheckConstraint("zoom BETWEEN 0 AND 21", name="tiles_zoom"),
    CheckConstraint("x >= 0 AND x < (1 << zoom::integer)", name="tiles_x"),
    CheckConstraint("y >= 0 AND y < (1 << zoom::integer)", name="tiles_y"),
    CheckConstraint(
        "resolution_m_per_px > 0 AND resolution_m_per_px < 'infinity'", name="tiles_resolution"
    ),
    CheckConstraint(_one_of("sector_class", SectorClass), name="tiles_sector_class"),
    CheckConstraint(_one_of("freshness", FreshnessLabel), name="tiles_freshness"),
    CheckConstraint(_one_of("voting_status", VotingStatus), name="tiles_voting_status"),
    CheckConstraint("segment > 0 AND byte_offset >= 0 AND byte_length >= 0", name="tiles_blob"),
    CheckConstraint("octet_length(sha256) = 32", name="tiles_sha256"),
    CheckConstraint("upload_attempts >= 0", name="tiles_upload_attempts"),
    # What was uploaded says when; what was not says nothing. A trusted tile may be either.
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
        "tiles_pending",
        "flight_id",
        "source",
        "zoom",
        "x",
        "y",
        postgresql_where=text("voting_status = 'pending'"),
    ),
)

flight_pins = Table(
    "flight_pins",
    metadata,
    Column("flight_id", _NAME, nullable=False, primary_key=True),
    _moment("pinned_at"),
)

cache_reservations = Table(
    "cache_reservations",
    metadata,
    Column("reservation_id", _NAME, nullable=False, primary_key=True),
    Column("reserved_bytes", BigInteger, nullable=False),
    _moment("expires_at"),
    CheckConstraint("reserved_bytes >= 0", name="cache_reservations_bytes"),
)
