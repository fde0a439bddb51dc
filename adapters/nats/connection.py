"""One connection to NATS, for synchronous callers: each call has a time limit and a category."""

import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

from attrs import define, field
from nats import errors as core

from tileferry.adapters.nats.address import NatsAddress
from tileferry.adapters.nats.errors import error_class, translated
from tileferry.adapters.nats.loop_thread import LoopThread
from tileferry.adapters.nats.session import Request, Session, open_session
from tileferry.application.retries.retry_manager import RetryManager
from tileferry.domain.checks import number
from tileferry.domain.errors import InvalidValueError, MessagingError
from tileferry.domain.retry import RetryCategory

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
    _session: Session | None = field(default=None, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False)
    _complaint: Exception | None = field(default=None, init=False, repr=False)
    """What the server or the network said last that was no answer to anything."""

    @_tls.default
    def _trusting(self) -> ssl.SSLContext | None:
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
    def at(cls, nats_url: str, *, retry: RetryManager, **options: Any) -> "NatsConnection":
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
            self._retried(RetryCategory.NATS_CONNECT, f"connect to {self.address}", self._connected)
        return self._retried(category, operation, attempt)

    def ask(self, request: Request[Result]) -> Result:
        """Make one request, once: for the attempts of a ``call``."""
        session = self._connected()
        return self._run(session.answer(request, timeout_s=self.timeout_s))

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

    def _retried(
        self, category: RetryCategory, operation: str, attempt: Callable[[], Result]
    ) -> Result:
        return self.retry.execute_with_retry_sync(
            category, operation, attempt, classifier=error_class
        )

    def _is_connected(self) -> bool:
        session = self._session
        return session is not None and session.client.is_connected

    def _connected(self) -> Session:
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
                        on_complaint=self._note_complaint,
                    )
                )
            return self._session

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Have the loop's thread await something; what it raises is translated."""
        thread = self._thread
        with translated(str(self.address)):
            if thread is None:  # closed by another thread just now
                coroutine.close()
                raise core.ConnectionClosedError
            # A session limits itself; this is for a loop that does not get to it.
            limit_s = self.timeout_s * len(self.address.servers)
            self._complaint = None
            try:
                return thread.run(coroutine, timeout_s=limit_s)
            except (core.NoServersError, TimeoutError) as error:
                raise self._blamed_for(error) from None

    async def _note_complaint(self, complaint: Exception) -> None:
        self._complaint = complaint

    def _blamed_for(self, silence: Exception) -> Exception:
        """When nothing came of a request, what was complained of meanwhile says why."""
        return self._complaint or silence
