"""Uploading a flight, with everything in memory and a provider that answers as it is told."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from support.managers import find_log_messages
from support.memory_upload_env import (
    PENDING,
    REJECTED,
    REQUEST,
    UPLOADED,
    FakeFlightRecords,
    LostStore,
    MemoryUploadEnv,
    create_tile,
    tile_content,
)

from tileferry.adapters.memory import (
    MemoryCacheLock,
)
from tileferry.application import UploadSettings
from tileferry.application.ports.progress import BatchAnswered, ProgressEvent
from tileferry.application.upload import batch_signing, flight_upload
from tileferry.domain.errors import (
    CacheLockError,
    DatabaseError,
    FlightStateNotOnGroundError,
    RateLimitedError,
    SatelliteProviderError,
    TileNotFoundError,
)
from tileferry.domain.tiles import (
    FlightState,
    PerTileStatus,
    ProviderFault,
    SignedEnvelope,
    TileMetadata,
    UploadBatchReport,
    UploadOutcome,
)


def unavailable_error() -> SatelliteProviderError:
    return SatelliteProviderError(reason="down", fault=ProviderFault.UNAVAILABLE, status=503)


def provider_error(reason: str, fault: ProviderFault) -> SatelliteProviderError:
    return SatelliteProviderError(reason=reason, fault=fault)


def test_flight_is_uploaded_in_signed_batches() -> None:
    flight = MemoryUploadEnv()
    upload = flight.create_upload()
    upload.confirm_flight_state()
    assert [row.tile_id for row in upload.enumerate_pending_tiles("F1")] == [
        *map(create_tile, range(5))
    ]
    report = upload.upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 5)
    assert flight.list_statuses() == [UPLOADED] * 5
    assert flight.list_sent() == [
        [create_tile(0), create_tile(1)],
        [create_tile(2), create_tile(3)],
        [create_tile(4)],
    ]
    assert all(
        sha256(body).hexdigest() == envelope.body_sha256 for envelope, body in flight.provider.posts
    )
    assert len({envelope.batch.key for envelope, _ in flight.provider.posts}) == 3
    assert len({envelope.public_key for envelope, _ in flight.provider.posts}) == 1
    assert flight.list_open_envelopes() == []


def test_batch_byte_limit_still_allows_one_tile() -> None:
    flight = MemoryUploadEnv(count=3)
    settings = UploadSettings(batch_bytes_max=1)
    flight.create_upload(settings=settings).upload_pending_tiles(REQUEST)
    assert flight.list_sent() == [[create_tile(0)], [create_tile(1)], [create_tile(2)]]


def test_nothing_is_sent_without_pending_tiles() -> None:
    flight = MemoryUploadEnv(count=0)
    assert flight.create_upload().upload_pending_tiles(REQUEST).per_tile_status == ()
    assert flight.provider.posts == []


def test_background_signing_keeps_batch_order() -> None:
    flight = MemoryUploadEnv(count=7)
    with ThreadPoolExecutor(max_workers=1) as background:
        report = flight.create_upload(background=background).upload_pending_tiles(REQUEST)
    assert report.tiles_acknowledged == 7
    assert [one for batch in flight.list_sent() for one in batch] == [*map(create_tile, range(7))]


def test_large_batch_is_reread_instead_of_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_signing, "KEPT_BYTES_MAX", 1)
    flight = MemoryUploadEnv(count=2)
    assert flight.create_upload().upload_pending_tiles(REQUEST).tiles_acknowledged == 2
    ((envelope, body),) = flight.provider.posts
    assert sha256(body).hexdigest() == envelope.body_sha256


def test_nothing_is_sent_without_lock_or_before_landing() -> None:
    flight = MemoryUploadEnv()
    airborne = flight.create_upload(flight_records=FakeFlightRecords(FlightState.AIRBORNE))
    with pytest.raises(FlightStateNotOnGroundError):
        airborne.confirm_flight_state()
    with pytest.raises(FlightStateNotOnGroundError):
        airborne.upload_pending_tiles(REQUEST)
    with pytest.raises(CacheLockError):
        flight.create_upload(lock=MemoryCacheLock()).upload_pending_tiles(REQUEST)
    assert flight.provider.posts == []


def test_invariant_8_retry_within_call_sends_identical_bytes() -> None:
    flight = MemoryUploadEnv(count=2)
    flight.provider.faults = [unavailable_error(), unavailable_error()]
    assert flight.create_upload().upload_pending_tiles(REQUEST).outcome is UploadOutcome.SUCCESS
    first, *repeats = flight.provider.posts
    assert repeats == [first, first]


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (provider_error("no", ProviderFault.UNAUTHORIZED), SatelliteProviderError),
        (provider_error("busy", ProviderFault.RATE_LIMITED), RateLimitedError),
    ],
)
def test_provider_error_is_raised_and_envelope_stays_open(
    fault: SatelliteProviderError, raised: type[Exception]
) -> None:
    flight = MemoryUploadEnv(count=2)
    flight.provider.faults = [fault] * 1_000
    with pytest.raises(raised):
        flight.create_upload().upload_pending_tiles(REQUEST)
    assert len(flight.list_open_envelopes()) == 1
    assert flight.list_statuses() == [PENDING] * 2


@define
class PipelineEnv(MemoryUploadEnv):
    """An upload whose provider calls ``on_post`` with the number of the request."""

    on_post: Callable[[int], None] = lambda _: None
    executor: ThreadPoolExecutor = field(factory=lambda: ThreadPoolExecutor(max_workers=1))

    def upload(self, *, has_background: bool = True, **options: Any) -> UploadBatchReport:
        def post(envelope: SignedEnvelope, contents: Iterable[bytes]) -> tuple[PerTileStatus, ...]:
            self.on_post(len(self.provider.posts) + 1)
            return self.provider.post_batch(envelope, contents)

        provider = SimpleNamespace(path="/", iter_body=self.provider.iter_body, post_batch=post)
        with self.executor as executor:
            background = executor if has_background else None
            upload = self.create_upload(provider=provider, background=background, **options)
            return upload.upload_pending_tiles(REQUEST)


def leave_open_envelope(flight: MemoryUploadEnv) -> SignedEnvelope:
    """Leave an envelope open whose answer never came."""
    flight.provider.faults = [provider_error("no", ProviderFault.UNAUTHORIZED)]
    with pytest.raises(SatelliteProviderError):
        flight.create_upload(batch_tiles_max=100).upload_pending_tiles(REQUEST)
    (left,) = flight.list_open_envelopes()
    flight.provider.posts.clear()
    return left


def test_invariant_8_open_envelope_is_resent_as_originally_signed() -> None:
    flight = MemoryUploadEnv()
    left = leave_open_envelope(flight)
    report = flight.create_upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 5)
    assert [envelope for envelope, _ in flight.provider.posts] == [left]
    assert flight.list_open_envelopes() == []


def replace_tile(flight: MemoryUploadEnv) -> None:
    """Capture a tile again; the older bytes are lost."""
    row = flight.metadata.get_metadata(create_tile(0))
    assert row is not None
    flight.store._contents.pop(row.blob)
    flight.capture(0, version=1)


def remove_tile(flight: MemoryUploadEnv) -> None:
    flight.metadata.forget([create_tile(0)])
    flight.store.delete_tile(create_tile(0))


@pytest.mark.parametrize(("change", "sent"), [(replace_tile, range(5)), (remove_tile, range(1, 5))])
def test_invariant_8_changed_bytes_are_sent_under_new_key(
    change: Callable[[MemoryUploadEnv], None], sent: range, caplog: pytest.LogCaptureFixture
) -> None:
    flight = MemoryUploadEnv()
    left = leave_open_envelope(flight)
    change(flight)
    report = flight.create_upload(batch_tiles_max=100).upload_pending_tiles(REQUEST)
    assert report.tiles_acknowledged == len(sent)
    ((envelope, _),) = flight.provider.posts
    assert envelope.batch.key != left.batch.key
    assert flight.list_sent() == [[*map(create_tile, sent)]]
    assert len(find_log_messages(caplog, "c11.upload.envelope_dropped")) == 1
    assert flight.list_open_envelopes() == []


def test_invariants_7_9_lost_answer_is_settled_although_a_tile_was_captured_again() -> None:
    """The older bytes are sent again as signed; the later capture is not taken for them."""
    flight = MemoryUploadEnv(count=3)
    left = leave_open_envelope(flight)
    flight.capture(0, version=1)
    flight.provider.poison = {create_tile(1)}
    report = flight.create_upload(attempts_max=3, batch_tiles_max=100).upload_pending_tiles(REQUEST)
    assert [envelope.batch.key == left.batch.key for envelope, _ in flight.provider.posts] == [
        True,
        False,
    ]
    assert flight.list_sent()[1] == [create_tile(0)]
    (rejected,) = report.per_tile_status.failures
    assert (rejected.tile_id, rejected.attempt) == (create_tile(1), left.batch.key)
    assert report.tiles_acknowledged == 2


def test_invariant_9_uncounted_rejection_is_counted_although_tiles_were_captured_again() -> None:
    """The recorded answer says which tiles were rejected; nothing is sent again under its key."""
    flight = MemoryUploadEnv(count=3)
    flight.provider.poison = {create_tile(1), create_tile(2)}
    flight.create_upload(attempts_max=3, batch_tiles_max=100).upload_pending_tiles(REQUEST)
    (left,) = flight.list_open_envelopes()
    flight.capture(0, version=1)
    flight.capture(1, version=1)
    flight.provider.posts.clear()
    report = flight.create_upload(attempts_max=3, batch_tiles_max=100).upload_pending_tiles(REQUEST)
    assert flight.list_sent() == [[create_tile(0)]]
    assert [(one.tile_id, one.attempt) for one in report.per_tile_status.failures] == [
        (create_tile(number), left.batch.key) for number in (1, 2)
    ]


def test_tile_rejected_on_resend_is_not_sent_again() -> None:
    flight = MemoryUploadEnv(count=3)
    leave_open_envelope(flight)
    flight.provider.poison = {create_tile(1)}
    report = flight.create_upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_rejected) == (UploadOutcome.PARTIAL, 1)
    assert len(flight.provider.posts) == 1


def test_rejection_carries_batch_key() -> None:
    flight = MemoryUploadEnv(count=2)
    flight.provider.poison = {create_tile(1)}
    report = flight.create_upload().upload_pending_tiles(REQUEST)
    (rejected,) = [each for each in report.per_tile_status if each.status is REJECTED]
    ((envelope, _),) = flight.provider.posts
    assert (rejected.reason, rejected.attempt) == ("blurred", envelope.batch.key)
    assert flight.list_open_envelopes() == []


def test_envelope_stays_open_until_rejections_are_counted() -> None:
    flight = MemoryUploadEnv(count=4)
    flight.provider.poison = {create_tile(1)}
    upload = flight.create_upload(attempts_max=3)
    upload.upload_pending_tiles(REQUEST)
    (left,) = flight.list_open_envelopes()
    assert left == flight.provider.posts[0][0]
    upload.close_counted()
    assert flight.list_open_envelopes() == []


@pytest.mark.parametrize("has_answers", [True, False], ids=["today", "stored before 0022"])
def test_uncounted_rejection_is_reported_again_after_crash(*, has_answers: bool) -> None:
    flight = MemoryUploadEnv(count=2)
    flight.provider.poison = {create_tile(1)}
    flight.create_upload(attempts_max=3).upload_pending_tiles(REQUEST)
    (left,) = flight.list_open_envelopes()
    if not has_answers:
        flight.envelopes._envelopes[left.batch.key] = flight.provider.posts[0][0]
    flight.provider.posts.clear()
    again = flight.create_upload(attempts_max=3)
    (status,) = again.upload_pending_tiles(REQUEST).per_tile_status
    assert (status.tile_id, status.attempt) == (create_tile(1), left.batch.key)
    assert status.reason == flight_upload.NOT_COUNTED
    assert flight.provider.posts == []
    again.close_counted()
    assert flight.list_open_envelopes() == []


def test_rejected_tile_is_resent_after_crash_without_counting() -> None:
    flight = MemoryUploadEnv(count=2)
    flight.provider.poison = {create_tile(1)}
    flight.create_upload(attempts_max=3).upload_pending_tiles(REQUEST)
    flight.provider.poison.clear()
    flight.provider.posts.clear()
    report = flight.create_upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, flight.list_sent()) == (UploadOutcome.SUCCESS, [[create_tile(1)]])
    assert flight.list_open_envelopes() == []


def test_unreadable_tile_is_not_a_rejection_and_does_not_block() -> None:
    flight = MemoryUploadEnv(count=4)
    flight.lose_tile_bytes(1)
    report = flight.create_upload(attempts_max=1).upload_pending_tiles(REQUEST)
    assert (report.tiles_acknowledged, report.tiles_rejected, report.tiles_unreadable) == (3, 0, 1)
    (unreadable,) = [each for each in report.per_tile_status if not each.status.acknowledged]
    assert (unreadable.tile_id, unreadable.attempt) == (create_tile(1), "damaged/0")
    assert (unreadable.reason or "").startswith(batch_signing.NOT_SENT)
    assert report.outcome is UploadOutcome.PARTIAL
    assert flight.list_sent() == [[create_tile(0)], [create_tile(2), create_tile(3)]]


def test_fully_unreadable_batch_is_not_sent() -> None:
    flight = MemoryUploadEnv(count=2)
    flight.lose_tile_bytes(0)
    flight.lose_tile_bytes(1)
    assert flight.create_upload().upload_pending_tiles(REQUEST).tiles_unreadable == 2
    assert flight.provider.posts == []


def test_damaged_tile_is_charged_only_if_attempts_are_counted() -> None:
    flight = MemoryUploadEnv(count=1)
    flight.lose_tile_bytes(0)
    for limit, attempt in ((None, None), (5, "damaged/0")):
        (entry,) = (
            flight.create_upload(attempts_max=limit).upload_pending_tiles(REQUEST).per_tile_status
        )
        assert (entry.attempt, entry.is_charged) == (attempt, limit is not None)


def test_no_tile_is_charged_for_a_lost_store() -> None:
    """A disk that is not mounted damages no tile."""
    flight = MemoryUploadEnv(count=3)
    report = flight.create_upload(attempts_max=5, tile_store=LostStore()).upload_pending_tiles(
        REQUEST
    )
    assert report.tiles_unreadable == 3
    assert [entry.is_charged for entry in report.per_tile_status] == [False] * 3


def test_invariant_8_open_envelope_outlives_a_lost_store() -> None:
    """Tiles that the provider may have are repeated as signed, once the disk is back."""
    flight = MemoryUploadEnv(count=2)
    left = leave_open_envelope(flight)
    report = flight.create_upload(attempts_max=5, tile_store=LostStore()).upload_pending_tiles(
        REQUEST
    )
    assert (report.tiles_unreadable, flight.provider.posts) == (2, [])
    assert [entry.is_charged for entry in report.per_tile_status] == [False, False]
    assert flight.list_open_envelopes() == [left]
    again = flight.create_upload(attempts_max=5).upload_pending_tiles(REQUEST)
    assert again.tiles_acknowledged == 2
    assert [envelope for envelope, _ in flight.provider.posts] == [left]


def test_invariant_9_counted_tile_of_a_dropped_envelope_is_not_sent_again() -> None:
    """A crash between the last count and the giveup costs the tile no further attempt."""
    flight = MemoryUploadEnv(count=2)
    key = leave_open_envelope(flight).batch.key
    assert flight.metadata.increment_upload_attempts(create_tile(1), key) == 1
    replace_tile(flight)  # so that the envelope cannot be repeated
    report = flight.create_upload(attempts_max=1).upload_pending_tiles(REQUEST)
    assert flight.list_sent() == [[create_tile(0)]]
    (counted,) = [each for each in report.per_tile_status if each.tile_id == create_tile(1)]
    assert (counted.status, counted.attempt) == (REJECTED, key)
    assert flight.metadata.increment_upload_attempts(create_tile(1), key) == 1


def test_tile_removed_during_upload_is_not_charged() -> None:
    flight = MemoryUploadEnv(count=2)
    store = LostStore(TileNotFoundError(tile=str(create_tile(0))))
    report = flight.create_upload(attempts_max=5, tile_store=store).upload_pending_tiles(REQUEST)
    for entry in report.per_tile_status:
        assert not entry.is_charged
        assert entry.reason == f"{batch_signing.NOT_SENT}: it is no longer in the cache"


@pytest.mark.parametrize("has_background", [False, True])
def test_batch_is_reported_after_answers_are_recorded(*, has_background: bool) -> None:
    flight = PipelineEnv(count=3)
    seen: list[tuple[int, int, int]] = []

    def listen(event: ProgressEvent) -> None:
        assert isinstance(event, BatchAnswered)
        uploaded = flight.list_statuses().count(UPLOADED)
        seen.append((len(event.answers), event.size_bytes, uploaded))

    flight.upload(has_background=has_background, progress=listen)
    size = len(tile_content(0))
    assert seen == [(2, 2 * size, 2), (1, size, 3)]


def test_answers_are_recorded_and_the_next_batch_is_stored_while_a_batch_is_sent() -> None:
    def check(number: int) -> None:
        flight.executor.submit(lambda: None).result()  # the background has done its part
        assert flight.list_statuses().count(UPLOADED) == 2 * (number - 1)
        assert len(flight.list_open_envelopes()) == (2 if number < 3 else 1)

    flight = PipelineEnv(count=6, on_post=check)
    assert flight.upload().tiles_acknowledged == 6
    assert flight.list_open_envelopes() == []


def test_answers_of_a_slow_batch_are_reported_before_the_next_one_is_sent() -> None:
    reported: list[int] = []

    def take_time(number: int) -> None:
        assert len(reported) == number - 1
        flight.bench.clock.advance(flight_upload.SLOW_S)

    flight = PipelineEnv(count=6, on_post=take_time)
    assert flight.upload(progress=lambda _: reported.append(1)).tiles_acknowledged == 6
    assert len(reported) == 3


@pytest.mark.parametrize("has_background", [False, True])
def test_invariant_7_answers_are_recorded_if_the_next_batch_cannot_be_read(
    *, has_background: bool
) -> None:
    flight = PipelineEnv(count=6)
    pages = flight.metadata.pending_uploads

    def break_off(flight_id: str) -> Iterator[TileMetadata]:
        yield from islice(pages(flight_id), 5)
        raise DatabaseError(problem="gone", remedy="")

    metadata = SimpleNamespace(pending_uploads=break_off)
    reported: list[ProgressEvent] = []
    with pytest.raises(DatabaseError, match="gone"):
        flight.upload(
            has_background=has_background, tile_metadata_store=metadata, progress=reported.append
        )
    sent = sum(map(len, flight.list_sent()))
    assert 2 <= sent == flight.list_statuses().count(UPLOADED)
    assert len(reported) == len(flight.list_sent())


@pytest.mark.parametrize("has_background", [False, True])
def test_invariant_7_answers_before_a_failed_request_are_recorded(*, has_background: bool) -> None:
    def fail(number: int) -> None:
        if number == 2:
            raise provider_error("no", ProviderFault.UNAUTHORIZED)

    flight = PipelineEnv(count=6, on_post=fail)
    reported: list[ProgressEvent] = []
    with pytest.raises(SatelliteProviderError):
        flight.upload(has_background=has_background, progress=reported.append)
    assert (flight.list_statuses().count(UPLOADED), len(reported)) == (2, 1)
    assert len(flight.list_open_envelopes()) == 2


@pytest.mark.parametrize("has_background", [False, True])
def test_listener_can_stop_between_batches_and_recorded_answers_stay(
    *, has_background: bool
) -> None:
    def stop(_: ProgressEvent) -> None:
        raise KeyboardInterrupt

    flight = PipelineEnv(count=6)
    with pytest.raises(KeyboardInterrupt):
        flight.upload(has_background=has_background, progress=stop)
    sent = sum(map(len, flight.list_sent()))
    assert 2 <= sent == flight.list_statuses().count(UPLOADED)
    report = flight.create_upload().upload_pending_tiles(REQUEST)
    assert report.tiles_acknowledged == 6 - sent


def test_spent_tile_that_is_captured_again_is_not_sent_again() -> None:
    flight = MemoryUploadEnv(count=2)
    flight.provider.poison = {create_tile(0)}
    first = flight.create_upload(attempts_max=1).upload_pending_tiles(REQUEST)
    key = next(entry.attempt for entry in first.per_tile_status if entry.attempt)
    # The last attempt is counted, then a crash: the tile is not given up.
    assert flight.metadata.increment_upload_attempts(create_tile(0), key) == 1
    flight.capture(0, version=1)
    again = flight.create_upload(attempts_max=1).upload_pending_tiles(REQUEST)
    assert [(entry.tile_id, entry.attempt) for entry in again.per_tile_status] == [
        (create_tile(0), key)
    ]
    assert len(flight.provider.posts) == 1
