"""Spec 1 over real HTTP and real Postgres; what was sent is the provider's own record."""

import gc
import logging
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.cache_upload_env import ON_GROUND, REQUEST, SOURCE, CacheUploadEnv, ingest_captures
from support.provider import RunningProvider

from tileferry.adapters.filesystem import FileCacheLock, FileFdrClient, FlightRecordFile
from tileferry.adapters.http import HttpTileUploader
from tileferry.adapters.postgres import PostgresTileMetadataStore
from tileferry.application import IdempotentRetryTileUploader
from tileferry.application.ports import TileUploader
from tileferry.domain.errors import (
    CacheLockError,
    FlightStateNotOnGroundError,
    InvalidValueError,
    SatelliteProviderError,
)
from tileferry.domain.tiles import UploadOutcome, VotingStatus
from tileferry.entrypoints.container import build_tile_uploader


@pytest.fixture
def upload_env(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> CacheUploadEnv:
    return CacheUploadEnv(tmp_path, database_url, reference_provider)


def test_spec1_ac1_immediate_success_neither_waits_nor_counts_attempts(
    upload_env: CacheUploadEnv,
) -> None:
    upload_env.capture(10)
    report = upload_env.upload()
    assert (report.outcome, report.retry_count, report.next_retry_at_s) == (
        UploadOutcome.SUCCESS, 0, None,
    )  # fmt: skip
    assert upload_env.clock.sleeps == []
    rows = upload_env.read_rows().values()
    assert {row.upload_attempts for row in rows} == {0}
    assert {row.voting_status for row in rows} == {VotingStatus.UPLOADED}


def test_spec1_ac2_rejected_tiles_are_retried(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(10)
    refused = upload_env.places[:3]
    upload_env.reject_tiles(*refused, times=1)
    report = upload_env.upload()
    assert (report.outcome, report.retry_count) == (UploadOutcome.SUCCESS, 1)
    assert report.tiles_acknowledged == 10
    assert upload_env.clock.sleeps == [2.0]
    assert [row.upload_attempts for row in upload_env.read_rows().values()] == [1] * 3 + [0] * 7
    assert upload_env.list_sent() == [*upload_env.places, *refused]


def test_spec1_ac3_tile_is_given_up_after_its_attempts_are_used(
    upload_env: CacheUploadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    upload_env.capture(10)
    bad = upload_env.places[4]
    upload_env.reject_tiles(bad)
    with caplog.at_level(logging.INFO, "tileferry.c11"):
        report = upload_env.upload(max_in_call_retries=10)
    assert (report.outcome, report.tiles_given_up) == (UploadOutcome.PARTIAL, 1)
    assert upload_env.clock.sleeps == [2.0, 4.0, 8.0, 16.0]  # and none once it is given up
    row = upload_env.read_rows()[bad]
    assert (row.voting_status, row.upload_attempts) == (VotingStatus.UPLOAD_GIVEUP, 5)
    assert upload_env.list_sent().count(bad) == 5
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.__dict__["kind"] for record in errors] == ["c11.upload.giveup"]
    with upload_env.open_container() as container:
        (record,) = container.fdr().records()
    assert record.kind == "c11.upload.giveup"
    assert record.payload == {
        "tile_id": f"{SOURCE}/{bad}",
        "attempts": 5,
        "last_rejection_reason": "the image cannot be ingested",
    }
    upload_env.upload()
    assert upload_env.list_sent().count(bad) == 5


@pytest.mark.parametrize("disabled", [False, True])
def test_spec1_ac9_ac10_retry_decorator_is_used_unless_disabled(
    upload_env: CacheUploadEnv, caplog: pytest.LogCaptureFixture, *, disabled: bool
) -> None:
    config = upload_env.create_config(disable_retry_decorator=disabled)
    with caplog.at_level(logging.INFO, "tileferry.c11"):
        uploader = build_tile_uploader(config)
    assert isinstance(uploader, TileUploader)
    assert isinstance(uploader, HttpTileUploader if disabled else IdempotentRetryTileUploader)
    kinds = [record.__dict__.get("kind") for record in caplog.records]
    assert kinds == (["c11.upload.retry_disabled"] if disabled else [])


def test_spec1_ac10_single_pass_without_the_retry_decorator(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(3)
    upload_env.reject_tiles(upload_env.places[1])
    report = upload_env.upload(disable_retry_decorator=True)
    assert (report.outcome, upload_env.posts, upload_env.clock.sleeps) == (
        UploadOutcome.PARTIAL,
        1,
        [],
    )
    assert upload_env.read_rows()[upload_env.places[1]].upload_attempts == 0


def test_spec1_ac12_airborne_flight_uploads_nothing(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(3)
    record = upload_env.home / "flight.json"
    moment = datetime.now(UTC).isoformat()
    record.write_text(f'{{"flight_id": "F1", "state": "airborne", "recorded_at": "{moment}"}}')
    with pytest.raises(FlightStateNotOnGroundError, match="airborne"):
        upload_env.upload(records=FlightRecordFile(path=record))
    assert (upload_env.posts, upload_env.clock.sleeps) == (0, [])
    with pytest.raises(
        InvalidValueError,
        match=r"c11\.flight_record_file.*set it.*confirm that the aircraft has landed",
    ):
        upload_env.upload(records=FlightRecordFile(path=None))


def test_spec1_ac12_provider_failure_raises_and_counts_no_attempts(
    upload_env: CacheUploadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    upload_env.capture(3)
    upload_env.provider.set_faults({"fault": "503", "call": "upload"})
    with caplog.at_level(logging.INFO, "tileferry.c11"), pytest.raises(SatelliteProviderError):
        upload_env.upload()
    assert "c11.upload.retry" not in [record.__dict__.get("kind") for record in caplog.records]
    assert all(seconds < 2 for seconds in upload_env.clock.sleeps)  # the call's own retries only
    assert {row.upload_attempts for row in upload_env.read_rows().values()} == {0}
    assert upload_env.posts == 3


def test_spec1_ac13_acknowledged_tiles_are_never_sent_again(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(50)
    refused = upload_env.places[30:]
    upload_env.reject_tiles(*refused, times=1)
    first = upload_env.upload(max_in_call_retries=0)
    assert (first.tiles_acknowledged, first.tiles_rejected) == (30, 20)
    second = upload_env.upload(max_in_call_retries=0)
    assert (second.outcome, second.tiles_acknowledged) == (UploadOutcome.SUCCESS, 20)
    times = Counter(upload_env.list_sent())
    assert {times[place] for place in upload_env.places[:30]} == {1}
    assert {times[place] for place in refused} == {2}


def test_uploader_built_from_configuration_uploads_a_flight(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(3)
    record = upload_env.home / "flight.json"
    record.write_text(
        '{"flight_id": "F1", "state": "on_ground", "recorded_at": "2026-10-20T10:00:00Z"}'
    )
    lock = FileCacheLock(root=upload_env.home / "cache")
    lock.acquire()
    uploader = build_tile_uploader(upload_env.create_config(flight_record_file=record))
    gc.collect()  # what it needs does not go before it does
    uploader.confirm_flight_state()
    assert len(list(uploader.enumerate_pending_tiles("F1"))) == 3
    assert uploader.upload_pending_tiles(REQUEST).tiles_acknowledged == 3
    del uploader
    gc.collect()
    lock.release()


def test_invariant_7_lost_response_is_retried_and_tiles_are_stored_once(
    upload_env: CacheUploadEnv,
) -> None:
    upload_env.capture(5)
    upload_env.provider.set_faults({"fault": "lost-answer", "call": "upload", "times": 1})
    report = upload_env.upload()
    assert (report.outcome, report.tiles_acknowledged, upload_env.posts) == (
        UploadOutcome.SUCCESS,
        5,
        2,
    )
    assert Counter(upload_env.list_sent()).most_common(1)[0][1] == 1


def test_each_retry_decision_is_audited_and_replayable(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(3)
    upload_env.reject_tiles(upload_env.places[1])
    upload_env.upload(max_in_call_retries=10)
    with upload_env.open_container() as container:
        found = list(container.audit_reader().read_since(None))
    told = [entry.event.event_type for entry in found if entry.event is not None]
    assert told == ["retry_attempt"] * 4 + ["retry_exhausted", "tile_giveup"]
    assert [entry.difference for entry in found] == [None] * 6
    assert all(entry.record is not None for entry in found[:-1])


def test_upload_without_the_lock_is_rejected(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(1)
    with upload_env.open_container() as container:
        uploader = container.tile_uploader(flight_records=ON_GROUND)
    with pytest.raises(CacheLockError):
        uploader.upload_pending_tiles(REQUEST)
    assert upload_env.posts == 0


def test_damaged_tile_is_skipped_and_uploaded_after_a_new_ingest(
    upload_env: CacheUploadEnv,
) -> None:
    upload_env.capture(10)
    bad = upload_env.places[4]
    (segment,) = (upload_env.home / "cache" / ".c6" / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[content.index(b"picture 4")] ^= 1
    segment.write_bytes(content)
    report = upload_env.upload(upload_batch_tiles=4, max_in_call_retries=2)
    assert (report.tiles_acknowledged, report.tiles_unreadable, report.retry_count) == (9, 1, 0)
    (refused,) = [entry for entry in report.per_tile_status if not entry.status.acknowledged]
    assert (refused.tile_id.x, refused.reason) == (
        39_004, "not sent, the cache cannot read it: its bytes do not match their checksum",
    )  # fmt: skip
    assert bad not in upload_env.list_sent()
    ingest_captures(upload_env.plan, upload_env.home / "card")  # mends it
    assert upload_env.upload().tiles_acknowledged == 1
    assert Counter(upload_env.list_sent()) == Counter(upload_env.places)


class SimulatedKill(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", ["counting", "recording"])
def test_invariant_9_kill_before_the_giveup_uses_no_extra_attempt(
    upload_env: CacheUploadEnv, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    upload_env.capture(4)
    bad = upload_env.places[1]
    upload_env.reject_tiles(bad)
    for _ in range(4):
        upload_env.upload(max_in_call_retries=0)

    def killed(*_given: object, **_named: object) -> None:
        raise SimulatedKill

    place = PostgresTileMetadataStore if after == "recording" else FileFdrClient
    with monkeypatch.context() as patch:
        patch.setattr(place, "update_voting_status" if after == "recording" else "record", killed)
        with pytest.raises(SimulatedKill):
            upload_env.upload(max_in_call_retries=0)
    left = upload_env.read_rows()[bad]
    assert (left.voting_status, left.upload_attempts) == (VotingStatus.PENDING, 5)
    upload_env.upload(max_in_call_retries=0)
    row = upload_env.read_rows()[bad]
    assert (row.voting_status, row.upload_attempts) == (VotingStatus.UPLOAD_GIVEUP, 5)
    assert upload_env.list_sent().count(bad) == 5


def test_invariant_9_kill_before_counting_loses_no_attempt(
    upload_env: CacheUploadEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_env.capture(4)
    upload_env.reject_tiles(upload_env.places[1], times=1)

    def killed(*_given: object) -> int:
        raise SimulatedKill

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTileMetadataStore, "increment_upload_attempts", killed)
        with pytest.raises(SimulatedKill):
            upload_env.upload()
    assert upload_env.read_rows()[upload_env.places[1]].upload_attempts == 0
    report = upload_env.upload()
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 1)
    assert upload_env.read_rows()[upload_env.places[1]].upload_attempts == 1
    assert Counter(upload_env.list_sent())[upload_env.places[0]] == 1


def test_damaged_tile_is_given_up_without_a_request(upload_env: CacheUploadEnv) -> None:
    upload_env.capture(1)
    (segment,) = (upload_env.home / "cache" / ".c6" / "segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    for attempts in (1, 2):
        report = upload_env.upload(max_per_tile_attempts=2)
        assert (report.tiles_given_up, report.next_retry_at_s) == (attempts // 2, None)
        assert upload_env.posts == 0
        assert upload_env.read_rows()[upload_env.places[0]].upload_attempts == attempts
    (row,) = upload_env.read_rows().values()
    assert row.voting_status is VotingStatus.UPLOAD_GIVEUP


def test_lost_segments_charge_no_tile_but_one_lost_segment_does(
    upload_env: CacheUploadEnv,
) -> None:
    upload_env.capture(1)
    segments = upload_env.home / "cache" / ".c6" / "segments"
    (segment,) = segments.iterdir()
    segment.unlink()
    assert upload_env.upload(max_per_tile_attempts=1).tiles_given_up == 0
    (segments / "000000007.seg").write_bytes(b"")  # the disk is there, and has another segment
    assert upload_env.upload(max_per_tile_attempts=1).tiles_given_up == 1
