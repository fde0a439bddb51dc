"""Spec 1 over real HTTP and real Postgres; what was sent is the provider's own record."""

import gc
import logging
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.provider import RunningProvider
from support.upload_process import ingest
from support.upload_site import LANDED, REQUEST, SOURCE, UploadSite

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
from tileferry.entrypoints.container import build_tile_uploader, tile_uploader_of


@pytest.fixture
def site(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> UploadSite:
    return UploadSite(tmp_path, database_url, reference_provider)


def test_spec1_ac1_a_first_success_waits_for_nothing_and_counts_nothing(site: UploadSite) -> None:
    site.captures(10)
    report = site.uploads()
    assert (report.outcome, report.retry_count, report.next_retry_at_s) == (
        UploadOutcome.SUCCESS, 0, None,
    )  # fmt: skip
    assert site.clock.sleeps == []
    rows = site.rows().values()
    assert {row.upload_attempts for row in rows} == {0}
    assert {row.voting_status for row in rows} == {VotingStatus.UPLOADED}


def test_spec1_ac2_what_is_rejected_once_is_tried_again(site: UploadSite) -> None:
    site.captures(10)
    refused = site.places[:3]
    site.poison(*refused, times=1)
    report = site.uploads()
    assert (report.outcome, report.retry_count) == (UploadOutcome.SUCCESS, 1)
    assert report.tiles_acknowledged == 10
    assert site.clock.sleeps == [2.0]
    assert [row.upload_attempts for row in site.rows().values()] == [1] * 3 + [0] * 7
    assert site.sent() == [*site.places, *refused]


def test_spec1_ac3_a_tile_that_spent_its_budget_is_given_up(
    site: UploadSite, caplog: pytest.LogCaptureFixture
) -> None:
    site.captures(10)
    bad = site.places[4]
    site.poison(bad)
    with caplog.at_level(logging.INFO, "tileferry.c11"):
        report = site.uploads(max_in_call_retries=10)
    assert (report.outcome, report.tiles_given_up) == (UploadOutcome.PARTIAL, 1)
    assert site.clock.sleeps == [2.0, 4.0, 8.0, 16.0]  # and none once it is given up
    row = site.rows()[bad]
    assert (row.voting_status, row.upload_attempts) == (VotingStatus.UPLOAD_GIVEUP, 5)
    assert site.sent().count(bad) == 5
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.__dict__["kind"] for record in errors] == ["c11.upload.giveup"]
    with site.container() as container:
        (record,) = container.fdr().records()
    assert record.kind == "c11.upload.giveup"
    assert record.payload == {
        "tile_id": f"{SOURCE}/{bad}",
        "attempts": 5,
        "last_rejection_reason": "the image cannot be ingested",
    }
    site.uploads()
    assert site.sent().count(bad) == 5


def test_spec1_ac4_a_call_that_spent_its_retries_says_when_to_come_back(site: UploadSite) -> None:
    site.captures(3)
    site.poison(site.places[1])
    before_s = site.clock.now()
    report = site.uploads(max_in_call_retries=3, max_per_tile_attempts=100)
    assert (report.outcome, report.retry_count) == (UploadOutcome.PARTIAL, 3)
    assert site.clock.sleeps == [2.0, 4.0, 8.0]
    assert site.posts == 4
    assert report.next_retry_at_s is not None
    assert before_s + 60 <= report.next_retry_at_s <= site.clock.now() + 60


def test_spec1_ac5_no_wait_is_longer_than_the_cap(site: UploadSite) -> None:
    site.captures(1)
    site.poison(site.places[0])
    site.uploads(max_in_call_retries=6, max_per_tile_attempts=100, backoff_cap_s=10.0)
    assert site.clock.sleeps == [2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize("disabled", [False, True])
def test_spec1_ac9_ac10_the_decorator_is_there_unless_it_is_disabled(
    site: UploadSite, caplog: pytest.LogCaptureFixture, *, disabled: bool
) -> None:
    config = site.config(disable_retry_decorator=disabled)
    with caplog.at_level(logging.INFO, "tileferry.c11"):
        uploader = build_tile_uploader(config)
    assert isinstance(uploader, TileUploader)
    assert isinstance(uploader, HttpTileUploader if disabled else IdempotentRetryTileUploader)
    kinds = [record.__dict__.get("kind") for record in caplog.records]
    assert kinds == (["c11.upload.retry_disabled"] if disabled else [])


def test_spec1_ac10_without_the_decorator_one_pass_is_made(site: UploadSite) -> None:
    site.captures(3)
    site.poison(site.places[1])
    report = site.uploads(disable_retry_decorator=True)
    assert (report.outcome, site.posts, site.clock.sleeps) == (UploadOutcome.PARTIAL, 1, [])
    assert site.rows()[site.places[1]].upload_attempts == 0


def test_spec1_ac12_an_aircraft_in_the_air_uploads_nothing(site: UploadSite) -> None:
    site.captures(3)
    record = site.home / "flight.json"
    moment = datetime.now(UTC).isoformat()
    record.write_text(f'{{"flight_id": "F1", "state": "airborne", "recorded_at": "{moment}"}}')
    with pytest.raises(FlightStateNotOnGroundError, match="airborne"):
        site.uploads(records=FlightRecordFile(path=record))
    assert (site.posts, site.clock.sleeps) == (0, [])
    with pytest.raises(InvalidValueError, match=r"c11\.flight_record_file.*set it.*--on-ground"):
        site.uploads(records=FlightRecordFile(path=None))


def test_spec1_ac12_a_provider_that_fails_is_no_partial_success(
    site: UploadSite, caplog: pytest.LogCaptureFixture
) -> None:
    site.captures(3)
    site.provider.misbehave({"fault": "503", "call": "upload"})
    with caplog.at_level(logging.INFO, "tileferry.c11"), pytest.raises(SatelliteProviderError):
        site.uploads()
    assert "c11.upload.retry" not in [record.__dict__.get("kind") for record in caplog.records]
    assert all(seconds < 2 for seconds in site.clock.sleeps)  # the call's own retries only
    assert {row.upload_attempts for row in site.rows().values()} == {0}
    assert site.posts == 3


def test_spec1_ac13_what_was_acknowledged_is_never_sent_again(site: UploadSite) -> None:
    site.captures(50)
    refused = site.places[30:]
    site.poison(*refused, times=1)
    first = site.uploads(max_in_call_retries=0)
    assert (first.tiles_acknowledged, first.tiles_rejected) == (30, 20)
    second = site.uploads(max_in_call_retries=0)
    assert (second.outcome, second.tiles_acknowledged) == (UploadOutcome.SUCCESS, 20)
    times = Counter(site.sent())
    assert {times[place] for place in site.places[:30]} == {1}
    assert {times[place] for place in refused} == {2}


def test_a_configuration_is_enough_to_upload_a_flight(site: UploadSite) -> None:
    site.captures(3)
    record = site.home / "flight.json"
    record.write_text(
        '{"flight_id": "F1", "state": "on_ground", "recorded_at": "2026-10-20T10:00:00Z"}'
    )
    lock = FileCacheLock(root=site.home / "cache")
    lock.acquire()
    uploader = build_tile_uploader(site.config(flight_record_file=record))
    gc.collect()  # what it needs does not go before it does
    uploader.confirm_flight_state()
    assert len(list(uploader.enumerate_pending_tiles("F1"))) == 3
    assert uploader.upload_pending_tiles(REQUEST).tiles_acknowledged == 3
    del uploader
    gc.collect()
    lock.release()


def test_invariant_7_a_lost_answer_is_repeated_and_counts_as_delivered(site: UploadSite) -> None:
    site.captures(5)
    site.provider.misbehave({"fault": "lost-answer", "call": "upload", "times": 1})
    report = site.uploads()
    assert (report.outcome, report.tiles_acknowledged, site.posts) == (UploadOutcome.SUCCESS, 5, 2)
    assert Counter(site.sent()).most_common(1)[0][1] == 1


def test_each_decision_is_in_the_audit_log_and_replays(site: UploadSite) -> None:
    site.captures(3)
    site.poison(site.places[1])
    site.uploads(max_in_call_retries=10)
    with site.container() as container:
        found = list(container.audit_reader().since(None))
    told = [entry.event.event_type for entry in found if entry.event is not None]
    assert told == ["retry_attempt"] * 4 + ["retry_exhausted", "tile_giveup"]
    assert [entry.difference for entry in found] == [None] * 6
    assert all(entry.record is not None for entry in found[:-1])


def test_without_the_lock_nothing_is_sent(site: UploadSite) -> None:
    site.captures(1)
    with site.container() as container:
        uploader = tile_uploader_of(container, flight_records=LANDED)
    with pytest.raises(CacheLockError):
        uploader.upload_pending_tiles(REQUEST)
    assert site.posts == 0


def test_a_damaged_tile_holds_up_no_other_and_is_mended_by_an_ingest(site: UploadSite) -> None:
    site.captures(10)
    bad = site.places[4]
    (segment,) = (site.home / "cache" / ".c6" / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[content.index(b"picture 4 ")] ^= 1
    segment.write_bytes(content)
    report = site.uploads(upload_batch_tiles=4, max_in_call_retries=2)
    assert (report.tiles_acknowledged, report.tiles_unreadable, report.retry_count) == (9, 1, 0)
    (refused,) = [entry for entry in report.per_tile_status if not entry.status.acknowledged]
    assert (refused.tile_id.x, refused.reason) == (
        39_004, "not sent: its bytes in the cache are damaged; ingest it again",
    )  # fmt: skip
    assert bad not in site.sent()
    ingest(site.plan, site.home / "card")  # mends it
    assert site.uploads().tiles_acknowledged == 1
    assert Counter(site.sent()) == Counter(site.places)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", ["counting", "recording"])
def test_invariant_9_a_kill_before_a_giveup_costs_no_further_attempt(
    site: UploadSite, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    site.captures(4)
    bad = site.places[1]
    site.poison(bad)
    for _ in range(4):
        site.uploads(max_in_call_retries=0)

    def killed(*_given: object, **_named: object) -> None:
        raise Killed

    place = PostgresTileMetadataStore if after == "recording" else FileFdrClient
    with monkeypatch.context() as patch:
        patch.setattr(place, "update_voting_status" if after == "recording" else "record", killed)
        with pytest.raises(Killed):
            site.uploads(max_in_call_retries=0)
    left = site.rows()[bad]
    assert (left.voting_status, left.upload_attempts) == (VotingStatus.PENDING, 5)
    site.uploads(max_in_call_retries=0)
    row = site.rows()[bad]
    assert (row.voting_status, row.upload_attempts) == (VotingStatus.UPLOAD_GIVEUP, 5)
    assert site.sent().count(bad) == 5


def test_invariant_9_a_kill_before_the_count_loses_none(
    site: UploadSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.captures(4)
    site.poison(site.places[1], times=1)

    def killed(*_given: object) -> int:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTileMetadataStore, "increment_upload_attempts", killed)
        with pytest.raises(Killed):
            site.uploads()
    assert site.rows()[site.places[1]].upload_attempts == 0
    report = site.uploads()
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 1)
    assert site.rows()[site.places[1]].upload_attempts == 1
    assert Counter(site.sent())[site.places[0]] == 1


def test_a_damaged_tile_that_nobody_mends_is_not_charged_and_not_given_up(site: UploadSite) -> None:
    site.captures(1)
    (segment,) = (site.home / "cache" / ".c6" / "segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    for _ in range(2):
        report = site.uploads(max_per_tile_attempts=1)
        assert (report.tiles_given_up, report.next_retry_at_s, site.posts) == (0, None, 0)
    row = site.rows()[site.places[0]]
    assert (row.voting_status, row.upload_attempts) == (VotingStatus.PENDING, 0)
