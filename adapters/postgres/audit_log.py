"""Postgres audit log. A database function (``audit_append``) extends the hash chain."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from attrs import frozen

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.encoding import (
    encode_bytea_array,
    encode_text_array,
    encode_timestamp_array,
    escape_text,
)
from tileferry.adapters.postgres.session import DURABLE
from tileferry.application.ports.audit import EventGroup
from tileferry.domain.audit import AuditEvent, ChainEntry, ChainHead, EntryIndexKeys, get_subject
from tileferry.domain.errors import DatabaseError
from tileferry.domain.lazy_imports import import_on_call

if TYPE_CHECKING:
    from sqlalchemy import Connection

with import_on_call(globals()):  # readers do not need it
    from tileferry.adapters.postgres.idempotent_statement import execute_idempotent

PAGE_ROWS = 1_000

APPEND = (
    "audit_append(%(group_id)s, %(bodies)b, %(event_types)b, %(moments)b, %(correlation_ids)b,"
    " %(subjects)b)"
)
"""SQL call to embed in a statement; ``append_parameters`` builds its parameters."""


def append_parameters(
    events: Sequence[AuditEvent], group_id: UUID | None = None
) -> dict[str, object]:
    """Return the events as one array per column. A group with an id is written at most once."""
    return {
        "group_id": group_id,
        "bodies": encode_bytea_array([event.canonical_bytes() for event in events]),
        "event_types": encode_text_array([event.event_type for event in events]),
        "moments": encode_timestamp_array([event.timestamp for event in events]),
        "correlation_ids": encode_text_array(
            [_escape_optional(event.correlation_id) for event in events]
        ),
        "subjects": encode_text_array([_escape_optional(get_subject(event)) for event in events]),
    }


def append_events(connection: "Connection", events: Sequence[AuditEvent]) -> None:
    """Append events as part of a transaction.

    Call it last before the commit: it blocks every other writer of the log until then.
    """
    if events:
        connection.exec_driver_sql(f"SELECT {APPEND}", append_parameters(events))


@frozen(kw_only=True)
class PostgresAuditLog:
    """Hash-chained audit log: one statement appends a group; entries are read in pages."""

    database: Database
    name: str = "postgres"
    new_group_id: Callable[[], UUID] = uuid4

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Append a group of events atomically. The group is durable when this returns."""
        if events:
            self._append(events, self.new_group_id())

    def emit_group(self, group: EventGroup) -> None:
        """Append a group of events atomically, unless a group with its id is there already."""
        if group.events:
            self._append(group.events, uuid5(NAMESPACE_OID, group.group_id))

    def _append(self, events: Sequence[AuditEvent], group_id: UUID) -> None:
        execute_idempotent(
            self.database, f"SELECT {APPEND}, {DURABLE}", append_parameters(events, group_id)
        )

    def read_head(self) -> ChainHead:
        """Return the last sequence number and hash of the chain."""
        rows = self.database.fetch_rows(_HEAD)
        if not rows:
            raise DatabaseError(
                problem="the head of the audit log is missing",
                remedy="restore the database from a backup",
            )
        return ChainHead(sequence=rows[0].sequence, hash=bytes(rows[0].hash).hex())

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the entries with a sequence number greater than ``after``."""
        return map(_entry_from_row, self._read_rows(_CHAIN, {}, after))

    def find_entries(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the entries whose correlation id or subject column equals ``subject``."""
        return map(_entry_from_row, self._read_rows(_ABOUT, {"subject": escape_text(subject)}, 0))

    def find_false_copies(self, *, after: int = 0) -> Iterator[int]:
        """Yield the numbers of entries whose unhashed index columns contradict the body."""
        for row in self._read_rows(_COPIES, {}, after):
            if not _copies_match(row):
                yield row.sequence

    def _read_rows(self, query: str, parameters: Mapping[str, object], after: int) -> Iterator[Any]:
        while True:
            page = {**parameters, "after": after, "limit": PAGE_ROWS}
            rows = self.database.fetch_rows(query, page)
            yield from rows
            if len(rows) < PAGE_ROWS:
                return
            after = rows[-1].sequence


def _escape_optional(value: str | None) -> str | None:
    return None if value is None else escape_text(value)


def _entry_from_row(row: Any) -> ChainEntry:
    return ChainEntry(
        sequence=row.sequence,
        previous_hash=bytes(row.previous_hash).hex(),
        body=bytes(row.body),
        hash=bytes(row.hash).hex(),
    )


def _copies_match(row: Any) -> bool:
    told = EntryIndexKeys.parse(bytes(row.body))
    return told is not None and (
        told.event_type,
        told.timestamp,
        _escape_optional(told.correlation_id),
        _escape_optional(told.subject),
    ) == (row.event_type, row.occurred_at, row.correlation_id, row.subject)


_HEAD = "SELECT sequence, hash FROM audit_head"
_PAGE = "FROM audit_log WHERE sequence > %(after)s ORDER BY sequence LIMIT %(limit)s"
_CHAIN = f"SELECT sequence, previous_hash, hash, body {_PAGE}"
_COPIES = f"SELECT sequence, body, event_type, occurred_at, correlation_id, subject {_PAGE}"
_HAS_SUBJECT = """
    SELECT sequence FROM audit_log
    WHERE hashtextextended({column}, 0) = hashtextextended(CAST(%(subject)s AS text) COLLATE "C", 0)
      AND {column} = %(subject)s AND sequence > %(after)s
    ORDER BY sequence LIMIT %(limit)s
"""
_ABOUT = (
    "SELECT * FROM audit_log WHERE sequence IN ("  # noqa: S608  # interpolates constants only
    f"({_HAS_SUBJECT.format(column='correlation_id')}) UNION"
    f" ({_HAS_SUBJECT.format(column='subject')})"
    ") ORDER BY sequence LIMIT %(limit)s"
)
