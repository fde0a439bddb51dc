"""Uploading a flight, with everything in memory and a provider that answers as it is told."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from support.managers import logged
from support.memory_flight import (
    PENDING,
    REJECTED,
    REQUEST,
    UPLOADED,
    Flight,
    Records,
    picture,
    tile,
)

from tileferry.adapters.memory import (
    MemoryCacheLock,
)
from tileferry.application import UploadSettings
from tileferry.application.transfers import upload as uploading
from tileferry.domain.errors import (
    CacheLockError,
    FlightStateNotOnGroundError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.tiles import (
    FlightState,
    PerTileStatus,
    ProviderFault,
    SignedEnvelope,
    UploadOutcome,
)


def down() -> SatelliteProviderError:
    return SatelliteProviderError(reason="down", fault=ProviderFault.UNAVAILABLE, status=503)


def refused(reason: str, fault: ProviderFault) -> SatelliteProviderError:
    return SatelliteProviderError(reason=reason, fault=fault)


def test_a_flight_is_sent_in_batches_each_signed_over_its_bytes() -> None:
    flight = Flight()
    upload = flight.upload()
    upload.confirm_flight_state()
    assert [row.tile_id for row in upload.enumerate_pending_tiles("F1")] == [*map(tile, range(5))]
    report = upload.upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 5)
    assert flight.statuses() == [UPLOADED] * 5
    assert flight.sent() == [[tile(0), tile(1)], [tile(2), tile(3)], [tile(4)]]
    assert all(
        sha256(body).hexdigest() == envelope.body_sha256 for envelope, body in flight.provider.posts
    )
    assert len({envelope.batch.key for envelope, _ in flight.provider.posts}) == 3
    assert len({envelope.public_key for envelope, _ in flight.provider.posts}) == 1
    assert flight.left_open() == []


def test_a_batch_is_bounded_in_bytes_and_takes_one_tile_at_least() -> None:
    flight = Flight(count=3)
    settings = UploadSettings(batch_bytes_max=1)
    flight.upload(settings=settings).upload_pending_tiles(REQUEST)
    assert flight.sent() == [[tile(0)], [tile(1)], [tile(2)]]


def test_with_nothing_waiting_nothing_is_sent() -> None:
    flight = Flight(count=0)
    assert flight.upload().upload_pending_tiles(REQUEST).per_tile_status == ()
    assert flight.provider.posts == []


def test_the_next_batch_is_signed_while_one_is_sent() -> None:
    flight = Flight(count=7)
    with ThreadPoolExecutor(max_workers=1) as background:
        report = flight.upload(background=background).upload_pending_tiles(REQUEST)
    assert report.tiles_acknowledged == 7
    assert [one for batch in flight.sent() for one in batch] == [*map(tile, range(7))]


def test_a_large_batch_is_read_again_instead_of_being_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploading, "KEPT_BYTES_MAX", 1)
    flight = Flight(count=2)
    assert flight.upload().upload_pending_tiles(REQUEST).tiles_acknowledged == 2
    ((envelope, body),) = flight.provider.posts
    assert sha256(body).hexdigest() == envelope.body_sha256


def test_nothing_is_sent_without_the_lock_or_before_the_landing() -> None:
    flight = Flight()
    airborne = flight.upload(flight_records=Records(FlightState.AIRBORNE))
    with pytest.raises(FlightStateNotOnGroundError):
        airborne.confirm_flight_state()
    with pytest.raises(FlightStateNotOnGroundError):
        airborne.upload_pending_tiles(REQUEST)
    with pytest.raises(CacheLockError):
        flight.upload(lock=MemoryCacheLock()).upload_pending_tiles(REQUEST)
    assert flight.provider.posts == []


def test_invariant_8_a_repeat_in_one_call_is_the_same_to_the_byte() -> None:
    flight = Flight(count=2)
    flight.provider.faults = [down(), down()]
    assert flight.upload().upload_pending_tiles(REQUEST).outcome is UploadOutcome.SUCCESS
    first, *repeats = flight.provider.posts
    assert repeats == [first, first]


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (refused("no", ProviderFault.UNAUTHORIZED), SatelliteProviderError),
        (refused("busy", ProviderFault.RATE_LIMITED), RateLimitedError),
    ],
)
def test_what_the_provider_refuses_is_raised_and_the_envelope_stays(
    fault: SatelliteProviderError, raised: type[Exception]
) -> None:
    flight = Flight(count=2)
    flight.provider.faults = [fault] * 1_000
    with pytest.raises(raised):
        flight.upload().upload_pending_tiles(REQUEST)
    assert len(flight.left_open()) == 1
    assert flight.statuses() == [PENDING] * 2


def interrupted(flight: Flight) -> SignedEnvelope:
    """Leave an envelope open whose answer never came."""
    flight.provider.faults = [refused("no", ProviderFault.UNAUTHORIZED)]
    with pytest.raises(SatelliteProviderError):
        flight.upload(batch_tiles_max=100).upload_pending_tiles(REQUEST)
    (left,) = flight.left_open()
    flight.provider.posts.clear()
    return left


def test_invariant_8_what_was_left_open_is_sent_as_it_was_signed_then() -> None:
    flight = Flight()
    left = interrupted(flight)
    report = flight.upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 5)
    assert [envelope for envelope, _ in flight.provider.posts] == [left]
    assert flight.left_open() == []


def replace(flight: Flight) -> None:
    flight.capture(0, version=1)


def remove(flight: Flight) -> None:
    flight.metadata.forget([tile(0)])
    flight.store.delete_tile(tile(0))


@pytest.mark.parametrize(("change", "sent"), [(replace, range(5)), (remove, range(1, 5))])
def test_invariant_8_other_bytes_go_out_under_another_key(
    change: Callable[[Flight], None], sent: range, caplog: pytest.LogCaptureFixture
) -> None:
    flight = Flight()
    left = interrupted(flight)
    change(flight)
    report = flight.upload(batch_tiles_max=100).upload_pending_tiles(REQUEST)
    assert report.tiles_acknowledged == len(sent)
    ((envelope, _),) = flight.provider.posts
    assert envelope.batch.key != left.batch.key
    assert flight.sent() == [[*map(tile, sent)]]
    assert len(logged(caplog, "c11.upload.envelope_dropped")) == 1
    assert flight.left_open() == []


def test_what_is_refused_when_repeated_is_not_sent_once_more() -> None:
    flight = Flight(count=3)
    interrupted(flight)
    flight.provider.poison = {tile(1)}
    report = flight.upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_rejected) == (UploadOutcome.PARTIAL, 1)
    assert len(flight.provider.posts) == 1


def test_a_rejection_carries_the_key_that_it_came_under() -> None:
    flight = Flight(count=2)
    flight.provider.poison = {tile(1)}
    report = flight.upload().upload_pending_tiles(REQUEST)
    (rejected,) = [each for each in report.per_tile_status if each.status is REJECTED]
    ((envelope, _),) = flight.provider.posts
    assert (rejected.reason, rejected.attempt) == ("blurred", envelope.batch.key)
    assert flight.left_open() == []


def test_where_rejections_are_counted_the_envelope_stays_until_they_are() -> None:
    flight = Flight(count=4)
    flight.provider.poison = {tile(1)}
    upload = flight.upload(attempts_max=3)
    upload.upload_pending_tiles(REQUEST)
    (left,) = flight.left_open()
    assert left == flight.provider.posts[0][0]
    upload.counted()
    assert flight.left_open() == []


def test_a_crash_before_the_count_reports_the_rejection_again_and_sends_nothing() -> None:
    flight = Flight(count=2)
    flight.provider.poison = {tile(1)}
    flight.upload(attempts_max=3).upload_pending_tiles(REQUEST)
    (left,) = flight.left_open()
    flight.provider.posts.clear()
    again = flight.upload(attempts_max=3)
    (status,) = again.upload_pending_tiles(REQUEST).per_tile_status
    assert (status.tile_id, status.attempt) == (tile(1), left.batch.key)
    assert status.reason == uploading.NOT_COUNTED
    assert flight.provider.posts == []
    again.counted()
    assert flight.left_open() == []


def test_where_nobody_counts_what_was_rejected_before_a_crash_is_sent_anew() -> None:
    flight = Flight(count=2)
    flight.provider.poison = {tile(1)}
    flight.upload(attempts_max=3).upload_pending_tiles(REQUEST)
    flight.provider.poison.clear()
    flight.provider.posts.clear()
    report = flight.upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, flight.sent()) == (UploadOutcome.SUCCESS, [[tile(1)]])
    assert flight.left_open() == []


def test_a_tile_that_cannot_be_read_is_no_rejection_and_keeps_nobody_waiting() -> None:
    flight = Flight(count=4)
    flight.lose(1)
    report = flight.upload(attempts_max=1).upload_pending_tiles(REQUEST)
    assert (report.tiles_acknowledged, report.tiles_rejected, report.tiles_unreadable) == (3, 0, 1)
    (unreadable,) = [each for each in report.per_tile_status if not each.status.acknowledged]
    assert (unreadable.tile_id, unreadable.attempt) == (tile(1), None)
    assert unreadable.reason == uploading.UNREADABLE
    assert report.outcome is UploadOutcome.PARTIAL
    assert flight.sent() == [[tile(0)], [tile(2), tile(3)]]


def test_a_batch_of_which_nothing_can_be_read_is_not_sent() -> None:
    flight = Flight(count=2)
    flight.lose(0)
    flight.lose(1)
    assert flight.upload().upload_pending_tiles(REQUEST).tiles_unreadable == 2
    assert flight.provider.posts == []


def test_the_observer_learns_of_answers_that_are_recorded() -> None:
    flight = Flight(count=3)
    seen: list[tuple[int, int, int]] = []

    class Observer:
        def answered(self, answers: Sequence[PerTileStatus], size_bytes: int) -> None:
            seen.append((len(answers), size_bytes, flight.statuses().count(UPLOADED)))

    flight.upload(observer=Observer()).upload_pending_tiles(REQUEST)
    size = len(picture(0))
    assert seen == [(2, 2 * size, 2), (1, size, 3)]
