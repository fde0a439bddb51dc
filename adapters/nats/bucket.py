"""JetStream key-value bucket with compare-and-set writes.

Uses the standard NATS subjects and headers, so ``nats kv`` can show the bucket. Reads go to the
stream's leader; nats-py's own ``get`` reports a missing stream as a missing key.
"""

from collections.abc import Iterator
from functools import partial
from logging import Logger

from attrs import field, frozen
from nats.js import errors as js
from nats.js.api import Header, StorageType, StreamConfig

from tileferry.adapters.nats.connection import NatsConnection
from tileferry.adapters.nats.errors import NO_MESSAGE, WRONG_LAST_SEQUENCE
from tileferry.adapters.nats.session import NatsSession
from tileferry.adapters.nats.streams import (
    GuardedWrite,
    check_durability,
    find_or_create_stream,
    get_sequence,
    read_stream,
    validate_stream_name,
)
from tileferry.domain.retry import RetryCategory

_OPERATION = "KV-Operation"
_DELETED = "DEL"
_MARKER_TTL_S = 3_600
"""Lifetime of a deletion marker: only concurrent writers need it, then the server drops it."""


@frozen
class BucketValue:
    """The value of a key; ``None`` if it was never written or was deleted."""

    content: bytes | None
    revision: int
    """The revision that the next write must name; 0 for an unknown key."""


@frozen(kw_only=True)
class Bucket:
    """A key-value bucket. A write succeeds only if it names the key's current revision."""

    connection: NatsConnection
    name: str = field(validator=validate_stream_name)

    @classmethod
    def open(
        cls,
        connection: NatsConnection,
        name: str,
        *,
        replicas: int,
        accept_weak_durability: bool,
        logger: Logger,
    ) -> "Bucket":
        """Open the bucket, creating it if needed; raise if its settings could lose records."""
        bucket = cls(connection=connection, name=name)
        config = connection.call(
            RetryCategory.KV_CREATE,
            f"open bucket {name}",
            lambda: connection.ask(partial(bucket._find_or_create, replicas=replicas)),
        )
        check_durability(
            config,
            what=f"bucket {name}",
            accept_weak_durability=accept_weak_durability,
            logger=logger,
        )
        return bucket

    def get(self, key: str) -> BucketValue:
        return self.connection.call(
            RetryCategory.KV_GET, f"get in {self.name}", partial(self._fetch, key)
        )

    def put(self, key: str, content: bytes, *, revision: int, ttl_s: int | None = None) -> bool:
        """Write a value; return ``False`` if ``revision`` is no longer current.

        The server drops the value after ``ttl_s``; servers before version 2.11 ignore it.
        """
        headers = {} if ttl_s is None else {Header.MSG_TTL.value: f"{ttl_s}"}
        return self._write(key, content, revision, headers).execute(
            RetryCategory.KV_PUT, f"put in {self.name}"
        )

    def delete(self, key: str, *, revision: int) -> bool:
        """Delete a value; return ``False`` if ``revision`` is no longer current."""
        headers = {_OPERATION: _DELETED, Header.MSG_TTL.value: f"{_MARKER_TTL_S}"}
        return self._write(key, None, revision, headers).execute(
            RetryCategory.KV_DELETE, f"delete in {self.name}"
        )

    def values(self) -> Iterator[tuple[str, BucketValue]]:
        """Yield every key that has a value, oldest write first."""
        prefix = self._subject("")
        for message in read_stream(self.connection, self._stream):
            if _OPERATION not in (message.headers or {}):
                yield (
                    message.subject.removeprefix(prefix),
                    BucketValue(message.data, get_sequence(message)),
                )

    @property
    def _stream(self) -> str:
        return f"KV_{self.name}"

    def _subject(self, key: str) -> str:
        return f"$KV.{self.name}.{key}"

    def _write(
        self, key: str, content: bytes | None, revision: int, headers: dict[str, str]
    ) -> GuardedWrite:
        guard = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: f"{revision}"}
        request = partial(self._publish, key=key, content=content or b"", headers=headers | guard)
        return GuardedWrite(
            connection=self.connection,
            write=lambda: self.connection.ask(request),
            landed=lambda: self._fetch(key).content == content,
        )

    def _fetch(self, key: str) -> BucketValue:
        return self.connection.ask(partial(self._read, key=key))

    async def _find_or_create(self, session: NatsSession, *, replicas: int) -> StreamConfig:
        return await find_or_create_stream(
            session,
            self._stream,
            lambda: session.js.create_key_value(
                bucket=self.name, history=1, storage=StorageType.FILE, replicas=replicas
            ),
        )

    async def _read(self, session: NatsSession, *, key: str) -> BucketValue:
        try:
            found = await session.js.get_msg(self._stream, subject=self._subject(key))
        except js.NotFoundError as error:
            if error.err_code != NO_MESSAGE:
                raise
            return BucketValue(None, 0)
        is_deleted = _OPERATION in (found.headers or {})
        return BucketValue(None if is_deleted else found.data or b"", found.seq or 0)

    async def _publish(
        self, session: NatsSession, *, key: str, content: bytes, headers: dict[str, str]
    ) -> bool:
        try:
            await session.js.publish(self._subject(key), content, headers=dict(headers))
        except js.APIError as error:
            if error.err_code in WRONG_LAST_SEQUENCE:
                return False
            raise
        return True
