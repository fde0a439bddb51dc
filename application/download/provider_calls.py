"""Calls to the provider at its pace, each retried by its policy; one gate delays all of them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from attrs import define, evolve, field

from tileferry.application.audit import notify_listener
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.progress import PaceChanged, RequestHeld
from tileferry.application.ports.provider import TileProvider
from tileferry.application.ports.retries import RequestPace
from tileferry.application.retries.driver import Attempts
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
    TileSummary,
    classify_provider_error,
    find_overload,
)

Result = TypeVar("Result")
_EDGE_DEGREES = 1e-9
"""0.1 mm, far less than the smallest tile."""


@define(kw_only=True)
class ProviderCalls:
    """The provider calls of one download. A rate limit on one call delays all calls.

    It makes the calls for the listing itself. For the tiles, ``TileFetcher`` asks it when to call,
    and what follows a failure.
    """

    provider: TileProvider
    retry: RetryManager
    pace: RequestPace
    clock: Clock
    policy: RetryPolicy
    correlation_id: str
    opens_at_s: float = field(default=0.0, init=False)
    """Monotonic time until which the provider limits the rate of all calls."""

    def iter_pages(
        self, coverage: TileCoverage, limits: ListingLimits
    ) -> Iterator[list[TileSummary]]:
        """Yield the provider's listing of an area page by page, each tile once.

        A page is emptied before the next one is fetched: memory is limited to one page. The parts
        of a shape are listed one after the other, and what is outside the shape is dropped.
        """
        started_s = self.clock.monotonic()
        if coverage.shape is None:
            yield from self._iter_box_pages(coverage, limits, started_s)
            return
        for block in coverage.iter_blocks():
            # Slightly smaller: a provider may list the tiles beyond an edge that a box touches.
            inside = TileCoverage(bbox=block.bounds.shrink(_EDGE_DEGREES), zoom_levels=[block.zoom])
            for tiles in self._iter_box_pages(inside, limits, started_s):
                yield [tile for tile in tiles if coverage.contains(tile.tile_id)]

    def _iter_box_pages(
        self, coverage: TileCoverage, limits: ListingLimits, started_s: float
    ) -> Iterator[list[TileSummary]]:
        progress = ListingProgress(coverage=coverage, limits=limits)
        cursor: str | None = None
        while True:
            page = self._call_with_retry(
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

    def _call_with_retry(self, operation: str, call: Callable[[], Result]) -> Result:
        """Return the result of a call that the pace and the gate may delay."""
        try:
            return self.retry.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                operation,
                lambda: self._call_at_pace(operation, call),
                self.policy,
                correlation_id=self.correlation_id,
                classifier=self._classify_error,
            )
        except RetryError as error:
            raise unwrap_retry_error(error) from error

    def _call_at_pace(self, operation: str, call: Callable[[], Result]) -> Result:
        started_s = self.pace.begin_request()
        failure: BaseException | None = None
        try:
            while (wait_s := self.opens_at_s - self.clock.monotonic()) > 0:
                self.report_held(operation, wait_s)
                self.clock.sleep(wait_s)
            return call()
        except BaseException as error:
            failure = error
            raise
        finally:
            self.end_request(started_s, failure)

    def begin_attempts(self, operation: str, started_s: float) -> Attempts:
        """Return the retry state of a call whose first attempt began at ``started_s``."""
        attempts = self.retry.attempts(
            RetryCategory.API_REQUEST,
            operation,
            self.policy,
            correlation_id=self.correlation_id,
            classifier=self._classify_error,
        )
        attempts.begin_first(started_s)
        return attempts

    def get_retry_delay(self, attempts: Attempts, error: Exception) -> float:
        """Record a failed attempt; return the wait before the next, or raise the final error."""
        attempts.record_failure(error)()
        try:
            delay_s = attempts.get_delay(error)
        except RetryError as spent:
            raise unwrap_retry_error(spent) from spent
        if delay_s is None:
            raise error
        return delay_s

    def end_request(self, started_s: float, error: BaseException | None) -> None:
        """End a request, and adapt the pace to its outcome."""
        adapt: Callable[[Pace], Pace] = Pace.speed_up
        if error is not None:
            adapt = keep_pace
            overload = find_overload(error) if isinstance(error, SatelliteProviderError) else None
            if overload is not None:
                now_s = self.clock.monotonic()
                adapt = partial(Pace.slow_down, cause=overload, started_s=started_s, now_s=now_s)
        before, after = self.pace.end_request(adapt)
        if after is not before:
            self._report_pace(before, after)

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
            self.opens_at_s = max(self.opens_at_s, self.clock.monotonic() + wait_s)
        return found

    def report_held(self, operation: str, wait_s: float) -> None:
        """Report a call that waits while the provider limits the rate."""
        rule = HoldRule.SOURCE_GATE
        self._notify(RequestHeld(operation=operation, rule=rule, delay_s=wait_s))
        self.retry.audit.logger.info(
            "%s: waiting %.1f s (%s)",
            operation,
            wait_s,
            rule.label,
            extra={"kind": "c11.download.held", "rule": rule.value, "sleep_s": wait_s},
        )


def keep_pace(pace: Pace) -> Pace:
    """Return the pace after a request that says nothing about it."""
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
