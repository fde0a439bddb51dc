"""An embedded installation is open for a while; and what a program may ask of it besides."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from attrs import evolve
from support.embedding import AREA, BOX, Site
from support.provider import RunningProvider

from tileferry.application.ports.progress import (
    DownloadEnded,
    ProgressEvent,
    TileSettled,
    Waiting,
)
from tileferry.domain.errors import (
    ArchiveError,
    FlightStateNotOnGroundError,
    InvalidValueError,
    SatelliteProviderError,
)
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import DownloadOutcome, TileId
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.embedding import Tileferry
from tileferry.entrypoints.provider.imagery import draw_tile

TILE = TileId(source="satellite", zoom=14, x=9840, y=5563)


@pytest.fixture
def site(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> Site:
    return Site(tmp_path, database_url, reference_provider)


def uses(ferry: Tileferry) -> list[Callable[[], object]]:
    """Return all that needs it open."""
    return [
        ferry.upgrade_database,
        lambda: ferry.retry_manager,
        lambda: ferry.coverage(bbox=BOX, zoom_levels=[14]),
        lambda: ferry.download(flight="F7", **AREA),
        lambda: ferry.read_tile(TILE),
        lambda: ferry.verify(bbox=BOX, zoom_levels=[14]),
        lambda: ferry.export(Path("tiles.mbtiles")),
        lambda: ferry.ingest(Path("card"), flight="F7"),
        lambda: ferry.upload(flight="F7", on_ground=True),
        lambda: ferry.submit_download(flight="F7", **AREA),
        lambda: ferry.submit_upload(flight="F7"),
        lambda: ferry.find_run(RunId("none")),
        ferry.work,
    ]


@pytest.mark.parametrize("was_open", [True, False])
def test_what_is_not_open_cannot_be_used(site: Site, *, was_open: bool) -> None:
    ferry = site.ferry()
    if was_open:
        with ferry:
            pass
    problem = "is closed" if was_open else "is not open yet"
    for use in uses(ferry):
        with pytest.raises(InvalidValueError, match=f"Tileferry: {problem}; use it inside of one"):
            use()
    assert not (site.home / "cache").exists(), "nothing was begun"


def test_without_a_block_it_is_opened_and_closed_by_hand(site: Site) -> None:
    ferry = site.ferry().open()
    with pytest.raises(InvalidValueError, match="is open already"):
        ferry.open()
    assert ferry.find_run(RunId("none")) is None
    ferry.close()
    ferry.close()
    with pytest.raises(InvalidValueError, match="is closed"):
        ferry.open()


@pytest.mark.parametrize("name", ["", "a\0b", "two words"])
def test_a_name_that_the_queue_could_not_hold_is_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidValueError, match="name: is not a plain name"):
        Tileferry(Config(), name=name)


def test_a_file_is_no_configuration() -> None:
    with pytest.raises(InvalidValueError, match="config: must be a Config"):
        Tileferry(Path("tileferry.toml"))  # type: ignore[arg-type]  # as who has not read the page


def test_only_a_plain_word_says_that_it_has_landed(site: Site) -> None:
    with site.ferry() as ferry, pytest.raises(InvalidValueError, match="on_ground: must be True"):
        ferry.upload(flight="F7", on_ground="no")  # type: ignore[arg-type]  # as above


def test_one_that_was_never_opened_can_be_closed(site: Site) -> None:
    ferry = site.ferry()
    ferry.close()
    with pytest.raises(InvalidValueError, match="is closed"):
        ferry.find_run(RunId("none"))


@pytest.mark.parametrize("call", ["download", "submit_download", "verify"])
def test_a_sector_that_is_none_is_refused_with_the_choices(site: Site, call: str) -> None:
    more = {} if call == "verify" else {"flight": "F7"}
    with site.ferry() as ferry, pytest.raises(InvalidValueError) as refused:
        getattr(ferry, call)(**{**AREA, "sector": "nonsense"}, **more)
    assert str(refused.value) == (
        "sector: is no sector class (got 'nonsense'); use one of active_conflict, stable_rear"
    )


def test_again_fetches_everything_anew(site: Site) -> None:
    with site.ferry() as ferry:
        first = ferry.download(flight="F7", **AREA)
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.IDEMPOTENT_NO_OP
        assert ferry.download(flight="F7", again=True, **AREA).outcome is DownloadOutcome.SUCCESS
    assert set(site.provider.fetched.values()) == {2}
    assert len(site.provider.fetched) == first.tiles_requested


def test_so_many_tiles_may_fail_as_the_program_allows(site: Site) -> None:
    site.provider.misbehave({"fault": "503", "tile": "14/9840/5563"})
    config = evolve(site.config(), c11=evolve(site.config().c11, max_5xx_retries=0))
    with Tileferry(config) as ferry:
        with pytest.raises(SatelliteProviderError):
            ferry.download(flight="F7", **AREA)
        report = ferry.download(flight="F7", max_failures_share=0.5, **AREA)
    assert (report.outcome, report.tiles_failed) == (DownloadOutcome.PARTIAL, 1)


def test_an_area_is_judged_for_a_day(site: Site) -> None:
    with site.ferry() as ferry:
        empty = ferry.verify(bbox=BOX, zoom_levels=[14], quick=True)
        assert (empty.verdict.is_go, empty.bytes_checked) == (False, False)
        ferry.download(flight="F7", **AREA)
        report = ferry.verify(bbox=BOX, zoom_levels=[14])
        assert (report.verdict.is_go, report.bytes_checked) == (True, True)
        in_a_year = datetime.now(UTC).date() + timedelta(days=400)
        assert not ferry.verify(bbox=BOX, zoom_levels=[14], on=in_a_year).verdict.is_go
        with pytest.raises(InvalidValueError, match="on: is over"):
            ferry.verify(bbox=BOX, zoom_levels=[14], on=date(2020, 1, 1))


def test_the_cache_is_exported(site: Site) -> None:
    dest = site.home / "tiles.mbtiles"
    with site.ferry() as ferry:
        tiles = ferry.download(flight="F7", **AREA).tiles_downloaded
        report = ferry.export(dest)
        assert (report.tiles_exported, report.about.name) == (tiles, "tiles")
        with pytest.raises(ArchiveError, match="is there already"):
            ferry.export(dest)
        some = ferry.export(dest, bbox=BOX, zoom_levels=[14], name="Mine", replace=True)
        assert (some.tiles_exported, some.about.name) == (tiles, "Mine")
    with closing(sqlite3.connect(dest)) as archive:
        assert archive.execute("SELECT count(*) FROM tiles").fetchone() == (tiles,)


@pytest.mark.parametrize("state", ["airborne", "on_ground"])
def test_a_flight_record_says_whether_it_has_landed(site: Site, state: str) -> None:
    card = site.home / "card" / "16" / "39000"
    card.mkdir(parents=True)
    (card / "22000.jpg").write_bytes(draw_tile(16, 39_000, 22_000))
    record = site.home / "record.json"
    said = {"flight_id": "F7", "state": state, "recorded_at": "2026-11-16T09:40:00Z"}
    record.write_text(json.dumps(said))
    with site.ferry() as ferry:
        ferry.ingest(site.home / "card", flight="F7")
        with pytest.raises(InvalidValueError, match="two answers to one question"):
            ferry.upload(flight="F7", on_ground=True, flight_record=record)
        with pytest.raises(InvalidValueError, match=r"flight_record=Path.*on_ground=True"):
            ferry.upload(flight="F7")
        if state == "on_ground":
            assert ferry.upload(flight="F7", flight_record=record).tiles_acknowledged == 1
        else:
            with pytest.raises(FlightStateNotOnGroundError):
                ferry.upload(flight="F7", flight_record=record)


def test_a_stop_is_told_as_an_end_that_failed(site: Site) -> None:
    def stop(event: ProgressEvent) -> None:
        site.heard.append(event)
        if isinstance(event, TileSettled):
            raise KeyboardInterrupt

    with Tileferry(site.config(), listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    ended = site.heard[-1]
    assert isinstance(ended, DownloadEnded)
    assert ended.report.outcome is DownloadOutcome.FAILURE


def test_another_exception_of_a_listener_ends_a_download_too(site: Site) -> None:
    def defective(event: ProgressEvent) -> None:
        if isinstance(event, TileSettled):
            raise ZeroDivisionError

    with Tileferry(site.config(), listener=defective) as ferry, pytest.raises(ZeroDivisionError):
        ferry.download(flight="F7", **AREA)
    with site.ferry() as ferry:
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS


def test_while_something_waits_another_exception_is_logged_and_ends_nothing(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def defective(event: ProgressEvent) -> None:
        if isinstance(event, Waiting):
            raise ZeroDivisionError("canary")

    site.provider.misbehave({"fault": "503", "call": "tile", "times": 1})
    with Tileferry(site.config(), listener=defective) as ferry:
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS
    assert "audit sink progress took none of 1 events: canary" in caplog.text
