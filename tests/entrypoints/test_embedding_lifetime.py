"""An embedded installation is open for a while; and what a program may ask of it besides."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from attrs import evolve
from support.embedding_env import AREA, BOX, EmbeddingEnv
from support.provider import RunningProvider

from tileferry.application.ports.progress import (
    DownloadFinished,
    ProgressEvent,
    RetryScheduled,
    TileProcessed,
)
from tileferry.domain.errors import (
    ArchiveError,
    FlightStateNotOnGroundError,
    InvalidStateError,
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
def env(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> EmbeddingEnv:
    return EmbeddingEnv(tmp_path, database_url, reference_provider)


def calls_requiring_open(ferry: Tileferry) -> list[Callable[[], object]]:
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
def test_calls_on_closed_instance_raise(env: EmbeddingEnv, *, was_open: bool) -> None:
    ferry = env.create_tileferry()
    if was_open:
        with ferry:
            pass
    problem = "is closed" if was_open else "is not open yet"
    for use in calls_requiring_open(ferry):
        with pytest.raises(InvalidStateError, match=f"Tileferry: {problem}; use it in one"):
            use()
    assert not (env.home / "cache").exists(), "nothing was begun"


def test_instance_can_be_opened_and_closed_explicitly(env: EmbeddingEnv) -> None:
    ferry = env.create_tileferry().open()
    with pytest.raises(InvalidStateError, match="is open already"):
        ferry.open()
    assert ferry.find_run(RunId("none")) is None
    ferry.close()
    ferry.close()
    with pytest.raises(InvalidStateError, match="is closed"):
        ferry.open()


@pytest.mark.parametrize("name", ["", "a\0b", "two words"])
def test_invalid_worker_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidValueError, match="name: is not a plain name"):
        Tileferry(Config(), name=name)


def test_path_instead_of_config_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="config: must be a Config"):
        Tileferry(Path("tileferry.toml"))  # type: ignore[arg-type]  # as who has not read the page


def test_non_boolean_on_ground_is_rejected(env: EmbeddingEnv) -> None:
    with (
        env.create_tileferry() as ferry,
        pytest.raises(InvalidValueError, match="on_ground: must be True"),
    ):
        ferry.upload(flight="F7", on_ground="no")  # type: ignore[arg-type]  # as above


def test_unopened_instance_can_be_closed(env: EmbeddingEnv) -> None:
    ferry = env.create_tileferry()
    ferry.close()
    with pytest.raises(InvalidStateError, match="is closed"):
        ferry.find_run(RunId("none"))


@pytest.mark.parametrize("call", ["download", "submit_download", "verify"])
def test_invalid_sector_is_rejected_with_choices(env: EmbeddingEnv, call: str) -> None:
    more = {} if call == "verify" else {"flight": "F7"}
    with env.create_tileferry() as ferry, pytest.raises(InvalidValueError) as refused:
        getattr(ferry, call)(**{**AREA, "sector": "nonsense"}, **more)
    assert str(refused.value) == (
        "sector: is not a sector class (got 'nonsense'); use one of active_conflict, stable_rear"
    )


def test_again_refetches_all_tiles(env: EmbeddingEnv) -> None:
    with env.create_tileferry() as ferry:
        first = ferry.download(flight="F7", **AREA)
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.IDEMPOTENT_NO_OP
        assert ferry.download(flight="F7", again=True, **AREA).outcome is DownloadOutcome.SUCCESS
    assert set(env.provider.fetched.values()) == {2}
    assert len(env.provider.fetched) == first.tiles_requested


def test_tile_failures_within_allowed_share_are_tolerated(env: EmbeddingEnv) -> None:
    env.provider.set_faults({"fault": "503", "tile": "14/9840/5563"})
    config = evolve(env.create_config(), c11=evolve(env.create_config().c11, max_5xx_retries=0))
    with Tileferry(config) as ferry:
        with pytest.raises(SatelliteProviderError):
            ferry.download(flight="F7", once=True, **AREA)
        report = ferry.download(flight="F7", max_failures_share=0.5, once=True, **AREA)
    assert (report.outcome, report.tiles_failed) == (DownloadOutcome.PARTIAL, 1)


def test_readiness_is_verified_for_given_date(env: EmbeddingEnv) -> None:
    with env.create_tileferry() as ferry:
        empty = ferry.verify(bbox=BOX, zoom_levels=[14], quick=True)
        assert (empty.verdict.is_go, empty.bytes_checked) == (False, False)
        ferry.download(flight="F7", **AREA)
        report = ferry.verify(bbox=BOX, zoom_levels=[14])
        assert (report.verdict.is_go, report.bytes_checked) == (True, True)
        in_a_year = datetime.now(UTC).date() + timedelta(days=400)
        assert not ferry.verify(bbox=BOX, zoom_levels=[14], on=in_a_year).verdict.is_go
        with pytest.raises(InvalidValueError, match="on: is over"):
            ferry.verify(bbox=BOX, zoom_levels=[14], on=date(2020, 1, 1))


def test_cache_is_exported_to_archive(env: EmbeddingEnv) -> None:
    dest = env.home / "tiles.mbtiles"
    with env.create_tileferry() as ferry:
        tiles = ferry.download(flight="F7", **AREA).tiles_downloaded
        report = ferry.export(dest)
        assert (report.tiles_exported, report.about.name) == (tiles, "tiles")
        with pytest.raises(ArchiveError, match="already exists"):
            ferry.export(dest)
        some = ferry.export(dest, bbox=BOX, zoom_levels=[14], name="Mine", replace=True)
        assert (some.tiles_exported, some.about.name) == (tiles, "Mine")
    with closing(sqlite3.connect(dest)) as archive:
        assert archive.execute("SELECT count(*) FROM tiles").fetchone() == (tiles,)


@pytest.mark.parametrize("state", ["airborne", "on_ground"])
def test_upload_requires_landed_flight_record(env: EmbeddingEnv, state: str) -> None:
    card = env.home / "card" / "16" / "39000"
    card.mkdir(parents=True)
    (card / "22000.jpg").write_bytes(draw_tile(16, 39_000, 22_000))
    record = env.home / "record.json"
    said = {"flight_id": "F7", "state": state, "recorded_at": "2026-11-16T09:40:00Z"}
    record.write_text(json.dumps(said))
    with env.create_tileferry() as ferry:
        ferry.ingest(env.home / "card", flight="F7")
        with pytest.raises(InvalidValueError, match="cannot be combined with on_ground"):
            ferry.upload(flight="F7", on_ground=True, flight_record=record)
        with pytest.raises(InvalidValueError, match="pass a flight record or confirm"):
            ferry.upload(flight="F7")
        if state == "on_ground":
            assert ferry.upload(flight="F7", flight_record=record).tiles_acknowledged == 1
        else:
            with pytest.raises(FlightStateNotOnGroundError):
                ferry.upload(flight="F7", flight_record=record)


def test_interrupted_download_emits_failed_end_event(env: EmbeddingEnv) -> None:
    def stop(event: ProgressEvent) -> None:
        env.heard.append(event)
        if isinstance(event, TileProcessed):
            raise KeyboardInterrupt

    with Tileferry(env.create_config(), listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    ended = env.heard[-1]
    assert isinstance(ended, DownloadFinished)
    assert ended.report.outcome is DownloadOutcome.FAILURE


def test_listener_exception_ends_download(env: EmbeddingEnv) -> None:
    def defective(event: ProgressEvent) -> None:
        if isinstance(event, TileProcessed):
            raise ZeroDivisionError

    with (
        Tileferry(env.create_config(), listener=defective) as ferry,
        pytest.raises(ZeroDivisionError),
    ):
        ferry.download(flight="F7", **AREA)
    with env.create_tileferry() as ferry:
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS


def test_listener_exception_during_wait_is_logged_and_ignored(
    env: EmbeddingEnv, caplog: pytest.LogCaptureFixture
) -> None:
    def defective(event: ProgressEvent) -> None:
        if isinstance(event, RetryScheduled):
            raise ZeroDivisionError("canary")

    env.provider.set_faults({"fault": "503", "call": "tile", "times": 1})
    with Tileferry(env.create_config(), listener=defective) as ferry:
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS
    assert "progress listener failed: canary" in caplog.text
