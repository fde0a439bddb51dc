"""One call under an idempotency key, and the checks of its claim."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, cast

from attrs import define, field, frozen

from tileferry.application.audit import CallContext
from tileferry.domain.audit import IdempotencyAction, IdempotencyOutcome
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError, MisuseError, RetryError
from tileferry.domain.idempotency import IdempotencyRecord, InProgress, PermanentFailure
from tileferry.domain.text import quote_value


class WhenBusy(StrEnum):
    """What to do when another caller holds the key."""

    WAIT = "wait"
    REFUSE = "refuse"


def _parse_when_busy(value: Any) -> WhenBusy:
    try:
        return WhenBusy(value)
    except ValueError:
        raise InvalidValueError(
            field="when_busy", value=value, problem=f"must be one of {', '.join(WhenBusy)}"
        ) from None


@frozen
class StoredResult:
    """A recorded result, which may be ``None``."""

    value: Any


@frozen(kw_only=True)
class IdempotentCall:
    """One call under a key."""

    key: str
    context: CallContext
    payload: JsonValue | bytes = None
    when_busy: WhenBusy = field(default=WhenBusy.WAIT, converter=_parse_when_busy)
    result_type: Any = Any
    """The type of the result. ``Any`` is for codecs that can encode every value."""
    observe: Callable[[IdempotencyAction], None] | None = None
    """Called with the action taken for the key."""
    is_final: Callable[[Exception], bool] = lambda error: not isinstance(error, RetryError)
    """Returns whether a failure is recorded for later callers."""
    on_claimed: Callable[[Callable[[], Any]], None] = lambda _renew: None
    """Called before the operation with a function that renews the claim, and raises if it is lost.

    For the asynchronous form, the function returns an awaitable.
    """


@define
class CancellableClaim:
    """A claim made in a thread; it is released if its caller was cancelled in the meantime."""

    _claim: Callable[[], IdempotencyRecord]
    _release: Callable[[IdempotencyRecord], None]
    _granted: IdempotencyRecord | None = field(default=None, init=False)
    _is_cancelled: bool = field(default=False, init=False)

    def __call__(self) -> IdempotencyRecord:
        self._granted = self._claim()
        if self._is_cancelled:
            self._release_granted()
        return self._granted

    def cancel(self) -> None:
        """Release the claim: now if it was granted, otherwise as soon as it is."""
        self._is_cancelled = True
        self._release_granted()

    def _release_granted(self) -> None:
        if self._granted is not None and isinstance(self._granted.state, InProgress):
            self._release(self._granted)


def check_claim(record: Any, key: str, fingerprint: str, owner: str) -> IdempotencyRecord:
    """Raise if the store returned a record of another call, so that nothing runs."""
    is_ours = isinstance(record, IdempotencyRecord) and (
        (record.key, record.fingerprint) == (key, fingerprint)
        and (not isinstance(record.state, InProgress) or record.owner == owner)
    )
    if not is_ours:
        raise MisuseError(
            what="IdempotencyStore.claim",
            problem=f"returned an unrelated record for key {key}: {quote_value(record)}",
            remedy="fix the store; the operation was not started",
        )
    return cast("IdempotencyRecord", record)


def check_content(content: Any) -> bytes:
    """Raise if a codec returned content that cannot be stored."""
    if not isinstance(content, bytes):
        raise TypeError(f"the codec made a {type(content).__name__} of it, no bytes")
    return content


def get_outcome(record: IdempotencyRecord) -> IdempotencyOutcome:
    """Return what the record of a finished call holds."""
    failed = isinstance(record.state, PermanentFailure)
    return IdempotencyOutcome.FAILURE if failed else IdempotencyOutcome.SUCCESS


@contextmanager
def unwrap_last_refusal() -> Iterator[None]:
    """Raise the last attempt's error: "key in use" is more useful than "retries exhausted"."""
    try:
        yield
    except RetryError as error:
        raise (error.__cause__ or error) from None


@contextmanager
def note_effect() -> Iterator[None]:
    """Note on an error of the block that the operation itself was carried out."""
    try:
        yield
    except Exception as error:
        error.add_note("the operation was carried out, but its result is not recorded")
        raise


def missing_dependency_error(name: str) -> MisuseError:
    """Return the error of an asynchronous call without ``sleep`` or ``offload``."""
    return MisuseError(
        what=f"IdempotencyManager.{name}",
        problem="is required for asynchronous calls",
        remedy="pass asyncio.sleep and asyncio.to_thread, or use the synchronous calls",
    )
