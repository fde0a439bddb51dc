"""Synchronous NATS connection with retries; an event loop runs in a background thread."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self, TypeVar

from attrs import define, field
from nats import errors as core
from nats.errors import ConnectionClosedError

from tileferry.adapters.nats.errors import classify_error, translate_nats_errors
from tileferry.adapters.nats.session import NatsAddress, NatsRequest, NatsSession, open_session
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.errors import InvalidValueError, MessagingError
from tileferry.domain.retry import RetryCategory
from tileferry.domain.validation import number

LoopResult = TypeVar("LoopResult")
_GRACE_S = 5.0
"""Added to a coroutine's own time limit, in case the loop is busy."""


@define(eq=False)
class LoopThread:
    """An event loop in a background thread that runs coroutines for any thread."""

    name: str
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop, init=False)
    _thread: Thread = field(init=False)

    @_thread.default
    def _start_thread(self) -> Thread:
        # A daemon thread, so that a program can exit without closing it.
        thread = Thread(target=self._loop.run_forever, name=self.name, daemon=True)
        thread.start()
        return thread

    def run(self, coroutine: Coroutine[Any, Any, LoopResult], *, timeout_s: float) -> LoopResult:
        """Run a coroutine and return its result; cancel it if the caller stops waiting."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # another thread closed the loop
            coroutine.close()
            raise ConnectionClosedError from error
        try:
            return future.result(timeout_s + _GRACE_S)
        except CancelledError as error:  # another thread closed the loop during the call
            raise ConnectionClosedError from error
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel all tasks and stop the thread."""
        self.run(_cancel_all(), timeout_s=_GRACE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _fetch_account(session: NatsSession) -> object:
    return await session.js.account_info()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


Result = TypeVar("Result")
TIMEOUT_S = 5.0
_CLOSING_S = 2.0


@define(kw_only=True, eq=False)
class NatsConnection:
    """A thread-safe connection that connects on first use and reconnects when needed."""

    address: NatsAddress
    retry: RetryManager = field(repr=False)
    """Its audit sinks must not use this connection."""
    timeout_s: float = field(default=TIMEOUT_S, validator=number(0.01))
    """Time limit of one request."""
    ca_file: Path | None = None
    """CA certificate file to trust instead of the system's CAs."""
    _tls: ssl.SSLContext | None = field(init=False, repr=False)
    _guard: Lock = field(factory=Lock, init=False, repr=False)
    _thread: LoopThread | None = field(default=None, init=False, repr=False)
    _session: NatsSession | None = field(default=None, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False)
    _complaint: Exception | None = field(default=None, init=False, repr=False)
    """The last asynchronous error from the server or the network."""

    @_tls.default
    def _make_tls_context(self) -> ssl.SSLContext | None:
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except OSError as error:
            raise InvalidValueError(
                field="ca_file",
                value=str(self.ca_file),
                problem=f"cannot be used: {error.strerror or error}",
                remedy="use a file with the CA's certificate in PEM format",
            ) from error

    @classmethod
    def from_url(cls, nats_url: str, *, retry: RetryManager, **options: Any) -> "NatsConnection":
        """Return a connection for a URL, without connecting."""
        return cls(address=NatsAddress.parse(nats_url), retry=retry, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def call(
        self, category: RetryCategory, operation: str, attempt: Callable[[], Result]
    ) -> Result:
        """Return the result of ``attempt``, retried by the category's policy.

        Connects first if needed, with the retry policy for connecting. If the connection is lost
        later, the next attempt reconnects once, so that the two retry loops never multiply.
        """
        if not self._is_connected():
            self._call_with_retry(
                RetryCategory.NATS_CONNECT, f"connect to {self.address}", self._connect
            )
        return self._call_with_retry(category, operation, attempt)

    def ask(self, request: NatsRequest[Result]) -> Result:
        """Send one request without retries; for use inside a ``call``."""
        session = self._connect()
        return self._run(session.await_request(request, timeout_s=self.timeout_s))

    def check_jetstream(self) -> None:
        """Raise unless the server is reachable and JetStream is enabled for the account."""
        self.ask(_fetch_account)

    def close(self) -> None:
        """Close the connection permanently; idempotent."""
        with self._guard:
            self._is_closed = True
            thread, session = self._thread, self._session
            self._thread = self._session = None
        if thread is None:
            return
        try:
            if session is not None:
                thread.run(session.close(), timeout_s=_CLOSING_S)
        finally:
            thread.close()

    def _call_with_retry(
        self, category: RetryCategory, operation: str, attempt: Callable[[], Result]
    ) -> Result:
        return self.retry.execute_with_retry_sync(
            category, operation, attempt, classifier=classify_error
        )

    def _is_connected(self) -> bool:
        session = self._session
        return session is not None and session.client.is_connected

    def _connect(self) -> NatsSession:
        """Return the session, connecting if needed; one thread at a time."""
        with self._guard:
            if self._is_closed:
                raise MessagingError(
                    problem=f"{self.address}: this connection was closed", remedy="open a new one"
                )
            if self._session is None or not self._session.client.is_connected:
                self._thread = self._thread or LoopThread("tileferry-nats")
                self._session = self._run(
                    open_session(
                        self.address,
                        tls=self._tls,
                        timeout_s=self.timeout_s,
                        on_complaint=self._record_server_error,
                    )
                )
            return self._session

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop's thread; translate its errors."""
        thread = self._thread
        with translate_nats_errors(str(self.address)):
            if thread is None:  # another thread closed the connection
                coroutine.close()
                raise core.ConnectionClosedError
            # A session has its own time limit; this one applies if the loop is blocked.
            limit_s = self.timeout_s * len(self.address.servers)
            self._complaint = None
            try:
                return thread.run(coroutine, timeout_s=limit_s)
            except (core.NoServersError, TimeoutError) as error:
                raise self._explain_silence(error) from None

    async def _record_server_error(self, complaint: Exception) -> None:
        self._complaint = complaint

    def _explain_silence(self, silence: Exception) -> Exception:
        """Return the last asynchronous error, which explains a missing answer; else ``silence``."""
        return self._complaint or silence
