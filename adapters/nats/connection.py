"""An event loop in a thread of its own: how synchronous code speaks through asyncio."""

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
"""What is added to a coroutine's own time limit, for a loop that is busy."""


@define(eq=False)
class LoopThread:
    """Runs coroutines for any thread, until it is closed."""

    name: str
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop, init=False)
    _thread: Thread = field(init=False)

    @_thread.default
    def _start_thread(self) -> Thread:
        # A daemon, so that a program that forgets to close it can end all the same.
        thread = Thread(target=self._loop.run_forever, name=self.name, daemon=True)
        thread.start()
        return thread

    def run(self, coroutine: Coroutine[Any, Any, LoopResult], *, timeout_s: float) -> LoopResult:
        """Return what a coroutine returns; it is cancelled when the caller cannot wait for it."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop was closed by another thread
            coroutine.close()
            raise ConnectionClosedError from error
        try:
            return future.result(timeout_s + _GRACE_S)
        except CancelledError as error:  # the same, in the middle of it
            raise ConnectionClosedError from error
        finally:
            future.cancel()

    def close(self) -> None:
        """End what still runs, and the thread."""
        self.run(_cancel_all(), timeout_s=_GRACE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


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
    """Connects when it is needed, and again when it has to. Any thread may call."""

    address: NatsAddress
    retry: RetryManager = field(repr=False)
    """Its audit trail must not lead into this very connection."""
    timeout_s: float = field(default=TIMEOUT_S, validator=number(0.01))
    """How long one request may take."""
    ca_file: Path | None = None
    """A private CA, instead of those that the machine trusts."""
    _tls: ssl.SSLContext | None = field(init=False, repr=False)
    _guard: Lock = field(factory=Lock, init=False, repr=False)
    _thread: LoopThread | None = field(default=None, init=False, repr=False)
    _session: NatsSession | None = field(default=None, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False)
    _complaint: Exception | None = field(default=None, init=False, repr=False)
    """What the server or the network said last that was no answer to anything."""

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
                remedy="give a file with the CA's certificate in PEM form",
            ) from error

    @classmethod
    def from_url(cls, nats_url: str, *, retry: RetryManager, **options: Any) -> "NatsConnection":
        """Return the connection to an address; nothing is connected yet."""
        return cls(address=NatsAddress.parse(nats_url), retry=retry, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def call(
        self, category: RetryCategory, operation: str, attempt: Callable[[], Result]
    ) -> Result:
        """Return what ``attempt`` returns, trying again as the category's policy says.

        Without a connection, one is made first, as its own policy says. One that is lost in
        between is made anew by the attempt that needs it: two loops never multiply.
        """
        if not self._is_connected():
            self._call_with_retry(
                RetryCategory.NATS_CONNECT, f"connect to {self.address}", self._connect
            )
        return self._call_with_retry(category, operation, attempt)

    def ask(self, request: NatsRequest[Result]) -> Result:
        """Make one request, once: for the attempts of a ``call``."""
        session = self._connect()
        return self._run(session.await_request(request, timeout_s=self.timeout_s))

    def close(self) -> None:
        """Give the connection back, for good; closing twice is no harm."""
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
        """Return the session, making one if there is none; one thread at a time."""
        with self._guard:
            if self._is_closed:
                raise MessagingError(
                    problem=f"{self.address}: this connection was closed", remedy="open another one"
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
        """Have the loop's thread await something; what it raises is translated."""
        thread = self._thread
        with translate_nats_errors(str(self.address)):
            if thread is None:  # closed by another thread just now
                coroutine.close()
                raise core.ConnectionClosedError
            # A session limits itself; this is for a loop that does not get to it.
            limit_s = self.timeout_s * len(self.address.servers)
            self._complaint = None
            try:
                return thread.run(coroutine, timeout_s=limit_s)
            except (core.NoServersError, TimeoutError) as error:
                raise self._explain_silence(error) from None

    async def _record_server_error(self, complaint: Exception) -> None:
        self._complaint = complaint

    def _explain_silence(self, silence: Exception) -> Exception:
        """When nothing came of a request, what was complained of meanwhile says why."""
        return self._complaint or silence
