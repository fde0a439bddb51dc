"""Calls to the provider, each retried by its policy; one gate delays all of them."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from attrs import define, evolve, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import WorkCancelled
from tileferry.application.ports.provider import FetchedTile, TileProvider
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
    classify_provider_error,
)

Result = TypeVar("Result")


@define(kw_only=True)
class ProviderCalls:
    """The provider calls of one download. A rate limit on one call delays all calls.

    Calls in progress when this is closed are not retried, and send no events.
    """

    provider: TileProvider
    retry: RetryManager
    clock: Clock
    policy: RetryPolicy
    correlation_id: str
    _opens_at_s: float = field(default=0.0, init=False)
    _closed: bool = field(default=False, init=False)

    def close(self) -> None:
        """Stop all calls."""
        self._closed = True

    def iter_pages(
        self, coverage: TileCoverage, limits: ListingLimits
    ) -> Iterator[list[TileSummary]]:
        """Yield the provider's listing of an area page by page, each tile once."""
        progress = ListingProgress(coverage=coverage, limits=limits)
        cursor: str | None = None
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
                yield progress.add_page(page)
            except InvalidValueError as error:
                raise to_schema_error(error) from error
            cursor = page.next
            if cursor is None:
                return

    def fetch_tile(self, tile_id: TileId) -> FetchedTile:
        """Return a tile, or raise the error of the last attempt."""
        tile, attempts = self._call_with_retry(
            f"GET tile {tile_id}", lambda: self.provider.fetch_tile(tile_id)
        )
        return tile if attempts == 1 else evolve(tile, attempts=attempts)

    def _call_with_retry(self, operation: str, call: Callable[[], Result]) -> tuple[Result, int]:
        """Return the result of a call and the number of attempts."""
        attempts = 0

        def attempt() -> Result:
            nonlocal attempts
            attempts += 1
            self._await_gate()
            try:
                return call()
            finally:
                self._check_open()

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

    def _check_open(self) -> None:
        if self._closed:
            raise WorkCancelled

    def _classify_error(self, error: BaseException) -> ErrorClass:
        found = classify_provider_error(error)
        if isinstance(found, RateLimited) and found.retry_after_s is not None:
            wait_s = cap_retry_after(found.retry_after_s, self.policy)
            self._opens_at_s = max(self._opens_at_s, self.clock.monotonic() + wait_s)
        return found

    def _await_gate(self) -> None:
        """Wait while the provider limits the rate of any call."""
        wait_s = self._opens_at_s - self.clock.monotonic()
        if wait_s > 0:
            self.clock.sleep(wait_s)


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
