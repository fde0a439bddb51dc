"""Postgres adapters: connection, embedded server, schema migrations, and the stores on them."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.postgres.absent_tiles import PostgresAbsentTiles
    from tileferry.adapters.postgres.audit_log import PostgresAuditLog
    from tileferry.adapters.postgres.cache import PostgresCacheBindings, PostgresCacheLedger
    from tileferry.adapters.postgres.database import Database
    from tileferry.adapters.postgres.database_copies import PostgresDatabaseCopies
    from tileferry.adapters.postgres.embedded import (
        EmbeddedServer,
        ServerState,
        ServerStatus,
        start_embedded,
    )
    from tileferry.adapters.postgres.envelopes import PostgresEnvelopeStore
    from tileferry.adapters.postgres.figures import PostgresFigureReader
    from tileferry.adapters.postgres.flights import PostgresFlightBook
    from tileferry.adapters.postgres.idempotency import PostgresIdempotencyStore
    from tileferry.adapters.postgres.map_index import PostgresMapIndex
    from tileferry.adapters.postgres.migrate import (
        SchemaStatus,
        downgrade,
        get_schema_status,
        upgrade,
    )
    from tileferry.adapters.postgres.patience import Patience
    from tileferry.adapters.postgres.psql import PsqlCommand, build_psql_command
    from tileferry.adapters.postgres.refused_tiles import PostgresRefusedTiles
    from tileferry.adapters.postgres.run_queue import PostgresRunQueue
    from tileferry.adapters.postgres.tile_index import PostgresBlobIndex
    from tileferry.adapters.postgres.tile_inventory import (
        PostgresCacheUsage,
        PostgresTileInventory,
        build_reopen_sql,
    )
    from tileferry.adapters.postgres.tile_metadata import PostgresTileMetadataStore
    from tileferry.adapters.postgres.tile_origins import PostgresTileOrigins
    from tileferry.adapters.postgres.work_reader import PostgresWorkReader
    from tileferry.adapters.postgres.work_store import PostgresWorkStore

__all__ = [
    "Database",
    "EmbeddedServer",
    "Patience",
    "PostgresAbsentTiles",
    "PostgresAuditLog",
    "PostgresBlobIndex",
    "PostgresCacheBindings",
    "PostgresCacheLedger",
    "PostgresCacheUsage",
    "PostgresDatabaseCopies",
    "PostgresEnvelopeStore",
    "PostgresFigureReader",
    "PostgresFlightBook",
    "PostgresIdempotencyStore",
    "PostgresMapIndex",
    "PostgresRefusedTiles",
    "PostgresRunQueue",
    "PostgresTileInventory",
    "PostgresTileMetadataStore",
    "PostgresTileOrigins",
    "PostgresWorkReader",
    "PostgresWorkStore",
    "PsqlCommand",
    "SchemaStatus",
    "ServerState",
    "ServerStatus",
    "build_psql_command",
    "build_reopen_sql",
    "downgrade",
    "get_schema_status",
    "start_embedded",
    "upgrade",
]
