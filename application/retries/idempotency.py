"""Run an operation once under its key, and return the same result to every caller.

A key is claimed before the operation runs, under a lease that is renewed while it runs. The result
is recorded; after a failure the key is released, unless final failures are kept. If the store is
unavailable, or the result could not be stored, the operation does not run. A retry of the operation
runs only after its claim was renewed.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from attrs import define, evolve, field

from tileferry.application.audit import AuditTrail, CallContext
from tileferry.application.ports.clock import AsyncSleep, Clock, Offload
from tileferry.application.ports.idempotency import Heartbeat, IdempotencyStore, ResultCodec
from tileferry.application.retries.driver import call_with_retry, call_with_retry_async
from tileferry.application.retries.idempotent_call import (
    CancellableClaim,
    IdempotentCall,
    StoredResult,
    WhenBusy,
    check_claim,
    check_content,
    get_outcome,
    missing_dependency_error,
    note_effect,
    unwrap_last_refusal,
)
from tileferry.application.retries.json_codec import JsonCodec
from tileferry.domain.audit import IdempotencyAction, IdempotencyOutcome, IdempotencyUsed
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    RecordedFailureError,
    ResultNotStorableError,
)
from tileferry.domain.idempotency import (
    Completed,
    IdempotencyRecord,
    InProgress,
    PermanentFailure,
    compute_idempotency_key,
    compute_payload_fingerprint,
)
from tileferry.domain.retry import RetryCategory, RetryPolicy
from tileferry.domain.text import format_error
from tileferry.domain.validation import check_duration, number

Result = TypeVar("Result")
_RENEWALS_PER_LEASE = 3
WAIT_S_MAX = 900.0
_WAIT_POLICY = RetryPolicy(
    name="IDEMPOTENCY_WAIT",
    max_attempts=1_000,
    base_delay=0.05,
    max_delay=1.0,
    non_retryable_exceptions=(Exception,),
    retryable_exceptions=(IdempotencyInProgressError,),
)
"""The wait for another caller that holds the key."""


def _validate_duration(_instance: object, attribute: Any, value: timedelta | None) -> None:
    if value is not None:
        check_duration(value, field=attribute.name)


@define(kw_only=True)
class IdempotencyManager:
    """Claims, records and releases keys. Its lease should be longer than a pause of the process."""

    store: IdempotencyStore
    clock: Clock
    new_id: Callable[[], str]
    """Returns an id that is unique across calls and hosts."""
    audit: AuditTrail
    sleep: AsyncSleep | None = None
    """Used by the asynchronous form, like ``offload``."""
    offload: Offload | None = None
    heartbeat: Heartbeat | None = None
    """Renews leases; without one, an operation must end within its lease."""
    codec: ResultCodec = field(factory=JsonCodec)
    lease: timedelta = field(default=timedelta(seconds=60), validator=_validate_duration)
    keep: timedelta | None = field(default=timedelta(days=7), validator=_validate_duration)
    """How long results are kept; ``None``: forever."""
    keep_failures: bool = False
    """Whether a final failure is recorded too, so that later callers get it without a call."""
    wait_s_max: float = field(default=90.0, validator=number(0, WAIT_S_MAX))
    """How long a second caller waits for the first; longer than a lease, to survive a crash."""

    compute_idempotency_key = staticmethod(compute_idempotency_key)

    # Run once, synchronous and asynchronous

    def run_once(self, operation: Callable[[], Any], call: IdempotentCall) -> Any:
        """Return the result of ``operation``, or the result recorded under its key."""
        self.codec.check_type(call.result_type)
        record = self._claim(call)
        if not isinstance(record.state, InProgress):
            return self._return_stored(record, call)
        call.on_claimed(partial(self.store.renew, record, lease=self.lease))
        with self._start_renewal(record):
            try:
                result = operation()
            except Exception as error:
                self._settle_failure(record, error, call)
                raise
            except BaseException:
                self._release(record)
                raise
            return self._store_result(record, result, call)

    async def run_once_async(
        self, operation: Callable[[], Awaitable[Any]], call: IdempotentCall
    ) -> Any:
        """Do what ``run_once`` does; the store is called off the event loop."""
        self.codec.check_type(call.result_type)
        record = await self._claim_async(call)
        if not isinstance(record.state, InProgress):
            return await self._run_off_loop(partial(self._return_stored, record, call))
        renew = partial(self.store.renew, record, lease=self.lease)
        call.on_claimed(partial(self._run_off_loop, renew))
        async with self._start_renewal_async(record):
            try:
                result = await operation()
            except Exception as error:
                await self._run_off_loop(partial(self._settle_failure, record, error, call))
                raise
            except BaseException:
                await self._run_off_loop(partial(self._release, record))
                raise
            return await self._run_off_loop(partial(self._store_result, record, result, call))

    # Manual control

    async def check_idempotency(self, idempotency_key: str) -> StoredResult | None:
        """Return the result recorded under a key, if any; a recorded final failure is raised."""
        return await self._run_off_loop(partial(self.check_idempotency_sync, idempotency_key))

    def check_idempotency_sync(self, idempotency_key: str) -> StoredResult | None:
        """Return the result recorded under a key, if any; a recorded final failure is raised."""
        record = self.store.find(idempotency_key)
        if record is None or isinstance(record.state, InProgress):
            return None
        self._emit(idempotency_key, IdempotencyAction.HIT, "check_idempotency", get_outcome(record))
        return StoredResult(self._decode_outcome(record))

    async def record_result(
        self, idempotency_key: str, result: Any, metadata: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Record a result under an unused key; ``metadata`` is written to the audit log."""
        await self._run_off_loop(
            partial(self.record_result_sync, idempotency_key, result, metadata)
        )

    def record_result_sync(
        self, idempotency_key: str, result: Any, metadata: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Record a result under a key; refuse one that is claimed or has another result."""
        context = CallContext(
            category=RetryCategory.KV_PUT, operation="record_result", additional_context=metadata
        )
        call = IdempotentCall(key=idempotency_key, context=context, when_busy=WhenBusy.REFUSE)
        content = self._encode(result, call)  # first: nothing is claimed for what cannot be stored
        record = self._claim(call)
        if isinstance(record.state, InProgress):
            self._store_content(record, content, call)
            return
        if self._decode_outcome(record) != self.codec.decode(content):
            known = record.state.result if isinstance(record.state, Completed) else b""
            raise IdempotencyConflictError(
                key=idempotency_key,
                recorded_fingerprint=compute_payload_fingerprint(known),
                offered_fingerprint=compute_payload_fingerprint(content),
            )

    async def clear_idempotency(self, idempotency_key: str) -> bool:
        """Delete a key, so that its operation can run again; return whether it existed."""
        return await self._run_off_loop(partial(self.clear_idempotency_sync, idempotency_key))

    def clear_idempotency_sync(self, idempotency_key: str) -> bool:
        """Delete a key, so that its operation can run again; return whether it existed."""
        was_there = self.store.clear(idempotency_key)
        if was_there:
            self._emit(idempotency_key, IdempotencyAction.CLEAR, "clear_idempotency")
        return was_there

    async def forget_expired(self, *, limit: int = 500) -> int:
        """Remove up to ``limit`` expired records, as workers do; return how many."""
        return await self._run_off_loop(partial(self.forget_expired_sync, limit=limit))

    def forget_expired_sync(self, *, limit: int = 500) -> int:
        """Remove up to ``limit`` expired records, as workers do; return how many."""
        return self.store.forget_expired(limit=limit)

    def _emit(
        self,
        key: str,
        action: IdempotencyAction,
        operation: str,
        outcome: IdempotencyOutcome | None = None,
    ) -> None:
        category = (
            RetryCategory.KV_DELETE if action is IdempotencyAction.CLEAR else RetryCategory.KV_GET
        )
        context = CallContext(category=category, operation=operation)
        self.audit.emit(context.build_idempotency_event(key, action, self.clock, outcome))

    # Steps

    def _claim(self, call: IdempotentCall) -> IdempotencyRecord:
        attempt = self._prepare_claim(call)
        if call.when_busy is WhenBusy.REFUSE:
            return attempt()
        with unwrap_last_refusal():
            return call_with_retry(
                attempt,
                policy=self._waiting,
                key=call.key,
                category=RetryCategory.EXECUTION_INTENT,
                operation="wait for an idempotency key",
                clock=self.clock,
            )

    async def _claim_async(self, call: IdempotentCall) -> IdempotencyRecord:
        claim = CancellableClaim(self._prepare_claim(call), self._release)
        try:
            if call.when_busy is WhenBusy.REFUSE:
                return await self._run_off_loop(claim)
            with unwrap_last_refusal():
                return await call_with_retry_async(
                    partial(self._run_off_loop, claim),
                    policy=self._waiting,
                    key=call.key,
                    category=RetryCategory.EXECUTION_INTENT,
                    operation="wait for an idempotency key",
                    clock=self.clock,
                    sleep=self._async_sleep,
                )
        except Exception:
            raise
        except BaseException:  # cancelled: the claiming thread continues
            await self._run_off_loop(claim.cancel)
            raise

    def _prepare_claim(self, call: IdempotentCall) -> Callable[[], IdempotencyRecord]:
        """Return the function that claims the key of a call."""
        fingerprint, owner = compute_payload_fingerprint(call.payload), self.new_id()

        def claim() -> IdempotencyRecord:
            record = self.store.claim(
                call.key, fingerprint=fingerprint, owner=owner, lease=self.lease
            )
            return check_claim(record, call.key, fingerprint, owner)

        return claim

    def _return_stored(self, record: IdempotencyRecord, call: IdempotentCall) -> Any:
        self.audit.emit(
            call.context.build_idempotency_event(
                call.key, IdempotencyAction.HIT, self.clock, get_outcome(record)
            )
        )
        if call.observe is not None:
            call.observe(IdempotencyAction.HIT)
        return self._decode_outcome(record)

    def _decode_outcome(self, record: IdempotencyRecord) -> Any:
        state = record.state
        if isinstance(state, PermanentFailure):
            raise RecordedFailureError(
                key=record.key,
                error_type=state.error_type,
                error_message=state.error_message,
                recorded_at=state.recorded_at,
            )
        assert not isinstance(state, InProgress)  # noqa: S101  # checked by the caller
        return self.codec.decode(state.result)

    def _store_result(self, record: IdempotencyRecord, result: Any, call: IdempotentCall) -> Any:
        """Record a result, and return it as later callers will receive it."""
        try:
            content = self._encode(result, call)
            self._store_content(record, content, call)
        except ResultNotStorableError as error:
            # The operation took effect, and must not run again because its result was not
            # recorded: this failure is kept even if final failures are not.
            self._record_failure(record, error, call)
            raise
        return self.codec.decode(content)

    def _store_content(
        self, record: IdempotencyRecord, content: bytes, call: IdempotentCall
    ) -> None:
        event = self._build_record_event(call, IdempotencyOutcome.SUCCESS)
        with note_effect():
            self.store.complete(record, content, keep=self.keep, event=event)
        self._announce_record(event, call)

    def _encode(self, result: Any, call: IdempotentCall) -> bytes:
        try:
            content = check_content(self.codec.encode(result))
        except Exception as error:
            raise ResultNotStorableError(
                key=call.key,
                problem=format_error(error),
                remedy="the operation was carried out and will not run again; return a value of "
                "the declared result_type that the codec can encode",
            ) from error
        return content

    def _settle_failure(
        self, record: IdempotencyRecord, error: Exception, call: IdempotentCall
    ) -> None:
        """Release the key; with ``keep_failures``, record a final failure for later callers."""
        if self.keep_failures and call.is_final(error):
            self._record_failure(record, error, call)
        else:
            self._release(record)

    def _record_failure(
        self, record: IdempotencyRecord, error: Exception, call: IdempotentCall
    ) -> None:
        event = self._build_record_event(call, IdempotencyOutcome.FAILURE)
        try:
            self.store.fail(record, error, keep=self.keep, event=event)
        except Exception as problem:  # noqa: BLE001  # the caller's own error matters more
            error.add_note(f"its failure was not recorded: {format_error(problem)}")
        else:
            self._announce_record(event, call)

    def _build_record_event(
        self, call: IdempotentCall, outcome: IdempotencyOutcome
    ) -> IdempotencyUsed:
        return call.context.build_idempotency_event(
            call.key, IdempotencyAction.RECORD, self.clock, outcome
        )

    def _announce_record(self, event: IdempotencyUsed, call: IdempotentCall) -> None:
        self.audit.emit(event, written_to=self.store.audit_sink)
        if call.observe is not None:
            call.observe(IdempotencyAction.RECORD)

    def _release(self, record: IdempotencyRecord) -> None:
        with contextlib.suppress(Exception):  # its lease expires anyway
            self.store.release(record)

    def _start_renewal(self, record: IdempotencyRecord) -> AbstractContextManager[object]:
        if self.heartbeat is None:
            return nullcontext()
        every_s = self.lease.total_seconds() / _RENEWALS_PER_LEASE
        return self.heartbeat.start(partial(self._renew, record), every_s=every_s)

    @asynccontextmanager
    async def _start_renewal_async(self, record: IdempotencyRecord) -> AsyncIterator[None]:
        """Renew the lease in the background; a renewal that hangs must not block the event loop."""
        beating = self._start_renewal(record)
        beating.__enter__()
        try:
            yield
        finally:
            await self._run_off_loop(partial(beating.__exit__, None, None, None))

    def _renew(self, record: IdempotencyRecord) -> bool:
        """Extend a lease; return whether to continue renewing."""
        try:
            self.store.renew(record, lease=self.lease)
        except IdempotencyLostError:
            return False
        except Exception as error:  # noqa: BLE001  # the store may recover before the lease expires
            self.audit.logger.warning(
                "the lease of idempotency key %s was not renewed: %s",
                record.key,
                format_error(error),
                extra={"kind": "idempotency.renewal_failed", "idempotency_key": record.key},
            )
        return True

    @property
    def _waiting(self) -> RetryPolicy:
        return evolve(_WAIT_POLICY, deadline_s=self.wait_s_max)

    @property
    def _async_sleep(self) -> AsyncSleep:
        if self.sleep is None:
            raise missing_dependency_error("sleep")
        return self.sleep

    async def _run_off_loop(self, call: Callable[[], Result]) -> Result:
        if self.offload is None:
            raise missing_dependency_error("offload")
        return await self.offload(call)
