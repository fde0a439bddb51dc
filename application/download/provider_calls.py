"""Calls to the provider at its pace, each retried by its policy; one gate delays all of them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from attrs import define, evolve, field

from tileferry.application.audit import notify_listener
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import WorkCancelled
from tileferry.application.ports.progress import PaceChanged, RequestHeld
from tileferry.application.ports.provider import FetchedTile, TileProvider, UnchangedTile
from tileferry.application.ports.retries import RequestPace
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.errors import (
    InvalidValueError,
    RateLimitedError,
    ResponseSchemaError,
    RetryError,
    SatelliteProviderError,
)
from tileferry.domain.retry import (
    ErrorClass,
    HoldRule,
    Pace,
    RateLimited,
    RetryCategory,
    RetryPolicy,
    cap_retry_after,
)
from tileferry.domain.tiles import (
    ListingLimits,
    ListingProgress,
    ProviderFault,
    TileCoverage,
    TileId,
    TileSummary,
    TileValidators,
    classify_provider_error,
    find_overload,
)

Result = TypeVar("Result")


@define(kw_only=True)
class ProviderCalls:
    """The provider calls of one download. A rate limit on one call delays all calls.

    Calls in progress when this is closed are not retried, and send no events.
    """

    provider: TileProvider
    retry: RetryManager
    pace: RequestPace
    clock: Clock
    policy: RetryPolicy
    correlation_id: str
    _opens_at_s: float = field(default=0.0, init=False)
    _closed: bool = field(default=False, init=False)

    def close(self) -> None:
        """Stop all calls."""
        self._closed = True
        self.pace.wake_waiting()

    def iter_pages(
        self, coverage: TileCoverage, limits: ListingLimits
    ) -> Iterator[list[TileSummary]]:
        """Yield the provider's listing of an area page by page, each tile once.

        A page is emptied before the next one is fetched: memory is limited to one page.
        """
        progress = ListingProgress(coverage=coverage, limits=limits)
        cursor: str | None = None
        started_s = self.clock.monotonic()
        while True:
            page, _ = self._call_with_retry(
                "GET listing",
                lambda: self.provider.fetch_listing_page(
                    coverage.bbox,
                    coverage.zoom_levels,
                    cursor,  # noqa: B023  # called within the same iteration
                ),
            )
            try:
                tiles = progress.add_page(page, elapsed_s=self.clock.monotonic() - started_s)
            except InvalidValueError as error:
                raise to_schema_error(error) from error
            cursor = page.next
            del page
            yield tiles
            tiles.clear()
            if cursor is None:
                return

    def fetch_tile(
        self, tile_id: TileId, *, unless: TileValidators | None = None
    ) -> FetchedTile | UnchangedTile:
        """Return a tile, or raise the error of the last attempt."""
        tile, attempts = self._call_with_retry(
            f"GET tile {tile_id}", lambda: self.provider.fetch_tile(tile_id, unless=unless)
        )
        return tile if attempts == 1 else evolve(tile, attempts=attempts)

    def _call_with_retry(self, operation: str, call: Callable[[], Result]) -> tuple[Result, int]:
        """Return the result of a call and the number of attempts."""
        attempts = 0

        def attempt() -> Result:
            nonlocal attempts
            attempts += 1
            return self._call_at_pace(operation, call)

        try:
            result = self.retry.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                operation,
                attempt,
                self.policy,
                correlation_id=self.correlation_id,
                classifier=self._classify_error,
            )
        except RetryError as error:
            raise unwrap_retry_error(error) from error
        return result, attempts

    def _call_at_pace(self, operation: str, call: Callable[[], Result]) -> Result:
        """Make one call when the pace allows it, and adapt the pace to the outcome."""
        started_s = self.pace.begin_request(lambda: self._closed)
        adapt: Callable[[Pace], Pace] = _keep_pace
        try:
            self._await_gate(operation)
            result = call()
            adapt = Pace.speed_up
        except SatelliteProviderError as error:
            cause = find_overload(error)
            if cause is not None:
                now_s = self.clock.monotonic()
                adapt = partial(Pace.slow_down, cause=cause, started_s=started_s, now_s=now_s)
            raise
        finally:
            before, after = self.pace.end_request(adapt)
            if self._closed:
                raise WorkCancelled
            self._report_pace(before, after)
        return result

    def _report_pace(self, before: Pace, after: Pace) -> None:
        """Report a pace that allows more or fewer requests; log each drop, and the recovery."""
        if (before.concurrency, before.spacing_s) == (after.concurrency, after.spacing_s):
            return
        self._notify(PaceChanged(pace=after))
        if after.is_slower_than(before) or after.is_full:
            self.retry.audit.logger.info(
                "%d of %d requests at a time, %.2f s apart: %s",
                after.concurrency,
                after.concurrency_max,
                after.spacing_s,
                after.cause or "full speed again",
                extra={
                    "kind": "c11.download.pace",
                    "rule": HoldRule.PACE.value,
                    "concurrency": after.concurrency,
                    "concurrency_max": after.concurrency_max,
                    "spacing_s": after.spacing_s,
                    "cause": after.cause,
                },
            )

    def _notify(self, event: RequestHeld | PaceChanged) -> None:
        notify_listener(event, self.retry.progress, self.retry.audit.logger)

    def _classify_error(self, error: BaseException) -> ErrorClass:
        found = classify_provider_error(error)
        if isinstance(found, RateLimited) and found.retry_after_s is not None:
            wait_s = cap_retry_after(found.retry_after_s, self.policy)
            self._opens_at_s = max(self._opens_at_s, self.clock.monotonic() + wait_s)
        return found

    def _await_gate(self, operation: str) -> None:
        """Wait while the provider limits the rate of any call."""
        while (wait_s := self._opens_at_s - self.clock.monotonic()) > 0:
            rule = HoldRule.SOURCE_GATE
            self._notify(RequestHeld(operation=operation, rule=rule, delay_s=wait_s))
            self.retry.audit.logger.info(
                "%s: waiting %.1f s (%s)",
                operation,
                wait_s,
                rule.label,
                extra={"kind": "c11.download.held", "rule": rule.value, "sleep_s": wait_s},
            )
            self.clock.sleep(wait_s)


def _keep_pace(pace: Pace) -> Pace:
    return pace


def to_schema_error(error: InvalidValueError) -> ResponseSchemaError:
    """Return the error for a response that violates the provider's contract."""
    return ResponseSchemaError(
        reason=f"response schema mismatch: {error.problem}",
        field=error.field,
        fault=ProviderFault.SCHEMA,
    )


def unwrap_retry_error(error: RetryError) -> Exception:
    """Return the error of the last attempt, with the number of attempts."""
    cause = error.__cause__
    assert isinstance(cause, SatelliteProviderError)  # noqa: S101  # only these are retried
    if cause.fault is ProviderFault.RATE_LIMITED:
        return RateLimitedError(
            url=cause.url or "", attempts=error.attempts, retry_after_s=cause.retry_after_s
        )
    return evolve(cause, attempts=error.attempts)
