"""Audit log as a JetStream stream: one message per entry, numbered by the stream."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from logging import Logger
from threading import Lock, get_ident
from uuid import uuid4

from attrs import define, field
from nats.js import errors as js
from nats.js.api import DiscardPolicy, Header, StorageType, StreamConfig

from tileferry.adapters.nats.connection import NatsConnection
from tileferry.adapters.nats.errors import (
    DUPLICATE_IN_BATCH,
    NO_MESSAGE,
    WRONG_LAST_SEQUENCE,
    is_too_large,
)
from tileferry.adapters.nats.session import NatsSession
from tileferry.adapters.nats.streams import (
    CONFLICTS_MAX,
    GuardedWrite,
    check_durability,
    find_or_create_stream,
    find_position,
    get_sequence,
    read_stream,
    too_many_conflicts,
    unsuitable_stream_error,
    validate_stream_name,
    validate_subject,
)
from tileferry.application.ports.audit import EventGroup
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainHead,
    build_next_entry,
    is_about,
)
from tileferry.domain.errors import InvalidValueError, MessagingError, RetryError
from tileferry.domain.retry import RetryCategory

STREAM = "TILEFERRY_AUDIT"
SUBJECT = "tileferry.audit"
GROUP_MAX = 1_000
"""Maximum size of an atomic batch on the server; a larger group is split into several batches."""
_HASH = "Tileferry-Hash"
_PREVIOUS_HASH = "Tileferry-Previous-Hash"
_GROUP = "Tileferry-Group"
"""The id of a group, in its first message."""
_DUPLICATE_WINDOW_S = 120.0
_CLOCK_SKEW = timedelta(hours=1)
"""How much the server's clock may differ from ours."""


@define(eq=False)
class _GroupSearch:
    """The ids of groups that were stored since a moment; messages are read once."""

    since: datetime
    position: int
    """The last sequence number that was read."""
    found: set[str] = field(factory=set)


@define(kw_only=True, eq=False)
class JetStreamAuditSink:
    """Hash-chained audit log. Appends after the last known entry and re-reads the head on conflict.

    The connection's own retries must be audited by another sink; a recursive append is refused.
    """

    connection: NatsConnection
    stream: str = field(default=STREAM, validator=validate_stream_name)
    subject: str = field(default=SUBJECT, validator=validate_subject)
    """Subject prefix: an event is published to ``<subject>.<event type>``."""
    name: str = "jetstream"
    _guard: Lock = field(factory=Lock, init=False, repr=False)
    _emitting: int | None = field(default=None, init=False, repr=False)
    _known_head: ChainHead | None = field(default=None, init=False, repr=False)
    _search: _GroupSearch | None = field(default=None, init=False, repr=False)

    @classmethod
    def open(
        cls,
        connection: NatsConnection,
        *,
        logger: Logger,
        stream: str = STREAM,
        subject: str = SUBJECT,
        replicas: int = 1,
        accept_weak_durability: bool = False,
    ) -> "JetStreamAuditSink":
        """Open the stream, creating it if needed; raise if its settings are unsafe."""
        sink = cls(connection=connection, stream=stream, subject=subject)
        request = partial(sink._find_or_create, replicas=replicas)
        config = connection.call(
            RetryCategory.NATS_STREAM_CREATE,
            f"open stream {stream}",
            lambda: connection.ask(request),
        )
        what = f"stream {stream}"
        check_durability(
            config, what=what, accept_weak_durability=accept_weak_durability, logger=logger
        )
        if config.max_msgs_per_subject > 0:
            raise unsuitable_stream_error(
                what, "limits the entries per subject (max_msgs_per_subject)"
            )
        if config.subjects != [f"{subject}.>"]:
            raise unsuitable_stream_error(what, f"has other subjects than {subject}.>")
        if not config.allow_atomic:
            raise unsuitable_stream_error(
                what, "does not accept atomic batches (allow_atomic; NATS 2.12 and later)"
            )
        return sink

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Append a group of events; each batch of up to ``GROUP_MAX`` is atomic."""
        self.emit_group(EventGroup(group_id=uuid4().hex, events=events))

    def emit_group(self, group: EventGroup) -> None:
        """Append a group of events, unless it is stored already.

        Each batch of up to ``GROUP_MAX`` is atomic. A group that is sent again is first looked for
        in the messages since it was sent first.
        """
        messages = [
            (f"{self.subject}.{event.event_type}", event.canonical_bytes())
            for event in group.events
        ]
        with self._exclusive_append(), _refuse_too_large():
            for start in range(0, len(messages), GROUP_MAX):
                batch_id = f"{group.group_id}/{start // GROUP_MAX}"
                self._append(messages[start : start + GROUP_MAX], batch_id, group.sent_at)

    def read_head(self) -> ChainHead:
        """Return the last sequence number and hash of the chain."""
        last = self.connection.call(
            RetryCategory.NATS_SUBSCRIBE,
            f"read the head of {self.stream}",
            lambda: self.connection.ask(partial(self._fetch_entry, last=True)),
        )
        return GENESIS if last is None else last.head

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the entries after a sequence number that exist when the read starts."""
        for message in read_stream(self.connection, self.stream, after=max(after, 0)):
            yield _parse_entry(get_sequence(message), message.headers, message.data)

    def find_entries(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the entries about ``subject``; reads the whole log."""
        return (entry for entry in self.iter_entries() if is_about(entry.body, subject))

    @contextmanager
    def _exclusive_append(self) -> Iterator[None]:
        """Serialize appends between threads; raise on a recursive append."""
        if self._emitting == get_ident():
            raise MessagingError(
                problem=f"stream {self.stream} cannot record the events of its own retries",
                remedy="give its connection a RetryManager with another audit sink",
            )
        with self._guard:
            self._emitting = get_ident()
            try:
                yield
            finally:
                self._emitting = None

    def _append(
        self, messages: Sequence[tuple[str, bytes]], batch_id: str, sent_at: datetime | None
    ) -> None:
        subjects = [subject for subject, _ in messages]
        for _ in range(CONFLICTS_MAX):
            head = self._known_head or self.read_head()
            # Looked for after the head was read: what arrives later makes the write fail.
            if sent_at is not None and self._is_stored(batch_id, sent_at):
                return
            entries = _chain_entries(head, [body for _, body in messages])
            self._known_head = None  # unknown if the next call raises
            if self._write(subjects, entries, batch_id):
                self._known_head = entries[-1].head
                return
        raise too_many_conflicts(f"stream {self.stream}")

    def _is_stored(self, batch_id: str, sent_at: datetime) -> bool:
        search = self._search
        if search is None or not timedelta(0) <= sent_at - search.since < _CLOCK_SKEW:
            position = find_position(self.connection, self.stream, sent_at - _CLOCK_SKEW)
            search = self._search = _GroupSearch(sent_at, position)
        for message in read_stream(self.connection, self.stream, after=search.position):
            search.position = get_sequence(message)
            search.found.add((message.headers or {}).get(_GROUP, ""))
        return batch_id in search.found

    def _write(self, subjects: Sequence[str], entries: Sequence[ChainEntry], batch_id: str) -> bool:
        request = partial(_publish, subjects=subjects, entries=entries, batch_id=batch_id)
        first = entries[0]

        def landed() -> bool:
            found = self.connection.ask(partial(self._fetch_entry, sequence=first.sequence))
            return found is not None and found.hash == first.hash

        return GuardedWrite(
            connection=self.connection,
            write=lambda: self.connection.ask(request),
            landed=landed,
        ).execute(RetryCategory.NATS_PUBLISH, f"publish to {self.subject}")

    async def _find_or_create(self, session: NatsSession, *, replicas: int) -> StreamConfig:
        config = StreamConfig(
            name=self.stream,
            description="tileferry's audit log: hash-chained, append-only",
            subjects=[f"{self.subject}.>"],
            storage=StorageType.FILE,
            num_replicas=replicas,
            discard=DiscardPolicy.NEW,
            duplicate_window=_DUPLICATE_WINDOW_S,
            deny_delete=True,
            deny_purge=True,
            allow_atomic=True,
        )
        return await find_or_create_stream(
            session, self.stream, lambda: session.js.add_stream(config)
        )

    async def _fetch_entry(
        self, session: NatsSession, *, sequence: int | None = None, last: bool = False
    ) -> ChainEntry | None:
        try:
            found = await session.js.get_msg(
                self.stream, seq=sequence, subject=f"{self.subject}.>" if last else None
            )
        except js.NotFoundError as error:
            if error.err_code != NO_MESSAGE:
                raise
            return None
        return _parse_entry(found.seq or 0, found.headers, found.data or b"")


@contextmanager
def _refuse_too_large() -> Iterator[None]:
    """Raise an event that the server will never accept as an invalid value."""
    try:
        yield
    except (MessagingError, RetryError) as error:
        if not is_too_large(error):
            raise
        raise InvalidValueError(
            field="event",
            value="an audit event",
            problem="is larger than a message of the NATS server may be",
            remedy="raise max_payload of the server, or record less context",
        ) from error


def _chain_entries(head: ChainHead, bodies: Sequence[bytes]) -> Sequence[ChainEntry]:
    entries: list[ChainEntry] = []
    for body in bodies:
        entries.append(build_next_entry(head, body))
        head = entries[-1].head
    return entries


def _parse_entry(sequence: int, headers: Mapping[str, str] | None, body: bytes) -> ChainEntry:
    """Build an entry from a message without verifying it."""
    said = headers or {}
    return ChainEntry(
        sequence=sequence,
        previous_hash=said.get(_PREVIOUS_HASH, ""),
        body=body,
        hash=said.get(_HASH, ""),
    )


async def _publish(
    session: NatsSession,
    *,
    subjects: Sequence[str],
    entries: Sequence[ChainEntry],
    batch_id: str,
) -> bool:
    """Publish a group atomically; return whether the server accepted it.

    The server accepts the group only if its last entry is the one the group is chained to. Each
    message also has an id, so that the server reports a repeated one.
    """
    messages = list(zip(subjects, entries, _build_headers(entries, batch_id), strict=True))
    for subject, entry, headers in messages[:-1]:
        await session.client.publish(subject, entry.body, headers=headers)
    subject, entry, headers = messages[-1]
    try:
        await session.js.publish(subject, entry.body, headers=headers)
    except js.APIError as error:
        if error.err_code in WRONG_LAST_SEQUENCE or error.err_code == DUPLICATE_IN_BATCH:
            return False
        raise
    return True


def _build_headers(entries: Sequence[ChainEntry], batch_id: str) -> Sequence[dict[str, str]]:
    all_headers = [
        {
            _HASH: entry.hash,
            _PREVIOUS_HASH: entry.previous_hash,
            Header.MSG_ID.value: entry.hash,
        }
        for entry in entries
    ]
    all_headers[0][_GROUP] = batch_id
    all_headers[0][Header.EXPECTED_LAST_SEQUENCE.value] = f"{entries[0].sequence - 1}"
    if len(entries) > 1:  # a single message needs no batch, which costs a disk sync
        batch = uuid4().hex
        for number, headers in enumerate(all_headers, start=1):
            headers |= {Header.BATCH_ID.value: batch, Header.BATCH_SEQUENCE.value: f"{number}"}
        all_headers[-1][Header.BATCH_COMMIT.value] = "1"
    return all_headers
