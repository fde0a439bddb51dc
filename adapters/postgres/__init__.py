"""Postgres: an embedded server or any other, its schema, and what is kept in it."""

from tileferry.adapters.postgres.audit_log import PostgresAuditLog
from tileferry.adapters.postgres.blob_index import PostgresBlobIndex
from tileferry.adapters.postgres.cache_bindings import PostgresCacheBindings
from tileferry.adapters.postgres.cache_ledger import PostgresCacheLedger
from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.embedded import start_embedded
from tileferry.adapters.postgres.envelopes import PostgresEnvelopeStore
from tileferry.adapters.postgres.idempotency import PostgresIdempotencyStore
from tileferry.adapters.postgres.migrate import SchemaStatus, downgrade, schema_status, upgrade
from tileferry.adapters.postgres.run_queue import PostgresRunQueue
from tileferry.adapters.postgres.tile_metadata import PostgresTileMetadataStore, reopening_sql
from tileferry.adapters.postgres.work import PostgresWorkStore
from tileferry.adapters.postgres.work_reader import PostgresWorkReader

__all__ = [
    "Database",
    "PostgresAuditLog",
    "PostgresBlobIndex",
    "PostgresCacheBindings",
    "PostgresCacheLedger",
    "PostgresEnvelopeStore",
    "PostgresIdempotencyStore",
    "PostgresRunQueue",
    "PostgresTileMetadataStore",
    "PostgresWorkReader",
    "PostgresWorkStore",
    "SchemaStatus",
    "downgrade",
    "reopening_sql",
    "schema_status",
    "start_embedded",
    "upgrade",
]
