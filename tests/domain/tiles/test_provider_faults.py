"""What the provider's failures mean for retrying."""

import pytest

from tileferry.domain.errors import (
    CacheBudgetExceededError,
    RateLimitedError,
    ResponseSchemaError,
    SatelliteProviderError,
)
from tileferry.domain.retry import Final, RateLimited, Retryable
from tileferry.domain.tiles import (
    ProviderFault,
    classify_fault,
    classify_provider_error,
    describe_fault,
    fault_from_status,
    find_overload,
    may_improve,
    should_abort_download,
)

CLASSES = {
    ProviderFault.UNREACHABLE: Retryable(),
    ProviderFault.TIMED_OUT: Retryable(),
    ProviderFault.TOO_SLOW: Retryable(),
    ProviderFault.UNAVAILABLE: Retryable(),
    ProviderFault.RATE_LIMITED: RateLimited(),
    ProviderFault.TRUNCATED: Retryable(),
    ProviderFault.DAMAGED: Retryable(),
    ProviderFault.NOT_FOUND: Final(),
    ProviderFault.UNAUTHORIZED: Final(),
    ProviderFault.INSECURE: Final(),
    ProviderFault.REDIRECTED: Final(),
    ProviderFault.REFUSED: Final(),
    ProviderFault.SCHEMA: Final(),
    ProviderFault.TOO_LARGE: Final(),
}


@pytest.mark.parametrize("fault", ProviderFault)
def test_each_provider_fault_has_error_class(fault: ProviderFault) -> None:
    assert classify_fault(fault) == CLASSES[fault]
    error = SatelliteProviderError(reason="x", fault=fault, retry_after_s=7.0)
    limited = fault is ProviderFault.RATE_LIMITED
    assert classify_provider_error(error) == (RateLimited(7.0) if limited else CLASSES[fault])


def test_error_without_provider_fault_is_final() -> None:
    assert classify_provider_error(ValueError()) == Final()
    assert classify_provider_error(SatelliteProviderError(reason="x")) == Final()
    assert classify_provider_error(
        ResponseSchemaError(reason="x", field="f", fault=ProviderFault.SCHEMA)
    ) == (Final())


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (204, "not_found"), (301, "redirected"), (308, "redirected"), (400, "refused"),
        (401, "unauthorized"), (403, "unauthorized"), (404, "not_found"), (408, "timed_out"),
        (410, "not_found"), (418, "refused"), (429, "rate_limited"), (500, "unavailable"),
        (503, "unavailable"), (599, "unavailable"),
    ],
)  # fmt: skip
def test_http_status_maps_to_fault(status: int, fault: str) -> None:
    assert fault_from_status(status) == fault


def test_fault_predicates() -> None:
    assert [fault for fault in ProviderFault if fault.is_missing_tile] == [ProviderFault.NOT_FOUND]
    assert [fault for fault in ProviderFault if fault.is_authentication] == [
        ProviderFault.UNAUTHORIZED,
        ProviderFault.INSECURE,
    ]
    assert not ProviderFault.UNAVAILABLE.concerns_one_tile
    assert ProviderFault.DAMAGED.concerns_one_tile


@pytest.mark.parametrize("fault", [*ProviderFault, None])
@pytest.mark.parametrize("share", [None, 0.0, 0.1, 1.0])
def test_faults_that_end_download(fault: ProviderFault | None, share: float | None) -> None:
    def ends(tiles_failed: int, *, others_answered: bool = False) -> bool:
        return should_abort_download(
            fault,
            others_answered=others_answered,
            tiles_failed=tiles_failed,
            tiles_requested=100,
            max_failures_share=share,
        )

    if fault in {ProviderFault.UNAUTHORIZED, ProviderFault.INSECURE}:
        assert ends(1)
        assert ends(1, others_answered=True)
    elif share is None:
        assert ends(1) == ends(100) == (fault is None or not fault.concerns_one_tile)
        may_be_weather = not isinstance(CLASSES[fault or ProviderFault.RATE_LIMITED], Final)
        assert ends(1, others_answered=True) == (ends(1) and not may_be_weather)
    else:
        assert [ends(int(100 * share)), ends(int(100 * share) + 1)] == [False, True]


@pytest.mark.parametrize(
    ("fault", "status", "sign"),
    [
        (ProviderFault.RATE_LIMITED, 429, "429"),
        (ProviderFault.UNAVAILABLE, 503, "503"),
        (ProviderFault.UNAVAILABLE, 504, "504"),
        (ProviderFault.UNAVAILABLE, 500, None),
        (ProviderFault.TIMED_OUT, None, "timeout"),
        (ProviderFault.TOO_SLOW, 200, "timeout"),
        (ProviderFault.UNREACHABLE, None, None),
        (ProviderFault.NOT_FOUND, 404, None),
        (None, 503, None),
    ],
)
def test_signs_of_overload(
    fault: ProviderFault | None, status: int | None, sign: str | None
) -> None:
    assert find_overload(SatelliteProviderError(reason="x", fault=fault, status=status)) == sign


def test_other_errors_are_no_overload() -> None:
    assert find_overload(None) is None
    assert find_overload(ValueError("503")) is None


@pytest.mark.parametrize("fault", ProviderFault)
def test_session_goes_on_after_faults_that_may_improve(fault: ProviderFault) -> None:
    error = SatelliteProviderError(reason="x", fault=fault)
    assert may_improve(error) == (not isinstance(CLASSES[fault], Final))


def test_session_ends_with_other_errors() -> None:
    assert may_improve(RateLimitedError(url="u", attempts=2))
    assert not may_improve(CacheBudgetExceededError(requested_bytes=2, available_bytes=1))
    assert not may_improve(SatelliteProviderError(reason="x"))


@pytest.mark.parametrize("fault", ProviderFault)
def test_every_fault_has_a_short_description(fault: ProviderFault) -> None:
    text = describe_fault(SatelliteProviderError(reason="x", fault=fault, status=418))
    assert 3 < len(text) < 20
    assert ("418" in text) == (
        fault in {ProviderFault.UNAVAILABLE, ProviderFault.REFUSED, ProviderFault.REDIRECTED}
    )


def test_errors_without_fault_are_described() -> None:
    assert describe_fault(RateLimitedError(url="u", attempts=2)) == "rate limited"
    assert describe_fault(SatelliteProviderError(reason="x")) == "provider failed"
