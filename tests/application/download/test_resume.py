"""Downloading an area again: what an earlier run left is believed as far as it is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn

import pytest
from support.download_env import RecordingListener
from support.managers import find_log_messages
from support.memory_download_env import MemoryDownloadEnv, create_fault, create_request

from tileferry.adapters.memory import (
    MemoryJournal,
    MemoryJournalStore,
    MemorySpoolStore,
    MemoryTileMetadataStore,
)
from tileferry.application.ports.downloads import ListingSpool
from tileferry.domain.errors import (
    StorageError,
)
from tileferry.domain.tiles import (
    DownloadOutcome,
    ProviderFault,
    TileSummary,
)

SUCCESS, PARTIAL = DownloadOutcome.SUCCESS, DownloadOutcome.PARTIAL


def test_journaled_tiles_missing_from_cache_are_refetched(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryDownloadEnv.with_tiles(4)
    area.create_download(marks_complete=False).download_tiles_for_area(create_request())
    gone = area.provider.tiles[2]
    area.metadata.forget([gone])
    area.provider.asked.clear()
    report = area.create_download(marks_complete=False).download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_downloaded) == (SUCCESS, 4)
    assert area.provider.fetched == [gone]
    (said,) = find_log_messages(caplog, "c11.journal.tiles_gone")
    assert "1 of its tiles are not in the cache any more" in said
    journal = area.journals.open(create_request().journal_name(area.provider.key_hash))
    assert journal.count == 4


@pytest.mark.parametrize("error", [OSError("no disk any more"), KeyboardInterrupt()])
def test_error_while_listing_in_resumed_run_is_raised_unchanged(
    error: BaseException,
) -> None:
    class Breaking:
        @contextmanager
        def create(self, source: str) -> Iterator[ListingSpool]:
            with MemorySpoolStore().create(source) as self.spool:
                yield self

        def append(self, tile: TileSummary) -> None:
            if tile.tile_id == area.provider.tiles[3]:
                raise error
            self.spool.append(tile)

        def __iter__(self) -> Iterator[TileSummary]:
            return iter(self.spool)

    area = MemoryDownloadEnv.with_tiles(4)
    area.create_download(marks_complete=False).download_tiles_for_area(create_request())
    area.metadata.forget(area.provider.tiles[3:])
    watcher = RecordingListener()
    with pytest.raises(type(error)) as ended:
        area.create_download(spools=Breaking(), progress=watcher).download_tiles_for_area(
            create_request()
        )
    assert ended.value is error
    (report,) = watcher.reports
    assert (report.tiles_requested, report.tiles_downloaded) == (4, 3)


@pytest.mark.parametrize("group", [2, 3])
def test_resumed_download_touches_tiles_it_does_not_refetch(
    monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    monkeypatch.setattr("tileferry.application.cache.tile_lookup._USED_TILES", group)
    area = MemoryDownloadEnv.with_tiles(4)
    area.provider.faults[area.provider.tiles[3]] = [create_fault(ProviderFault.NOT_FOUND)]
    for later_s in (0.0, 3_600.0):
        area.bench.clock.advance(later_s)
        area.create_download().download_tiles_for_area(create_request())
    used = [tile.last_used_at - tile.stored_at for tile in area.metadata.all_tiles()]
    assert used == [timedelta(hours=1)] * 3 + [timedelta()]


def test_complete_journal_of_another_cache_is_ignored() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    area.create_download().download_tiles_for_area(create_request())
    emptied = MemoryDownloadEnv(area.provider, journals=area.journals)
    report = emptied.create_download().download_tiles_for_area(create_request())
    assert (report.outcome, emptied.list_stored()) == (SUCCESS, area.provider.tiles)


def test_stored_tiles_missing_from_journal_are_reused_and_journaled() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    area.create_download(marks_complete=False).download_tiles_for_area(create_request())
    name = create_request().journal_name(area.provider.key_hash)
    area.journals.discard(name)
    area.journals.open(name).append(area.provider.tiles[:1])
    area.provider.asked.clear()
    report = area.create_download().download_tiles_for_area(create_request())
    assert (report.tiles_downloaded, area.provider.fetched) == (3, [])
    assert area.journals.open(name).count == 3


def test_journal_is_closed_when_resume_fails() -> None:
    area = MemoryDownloadEnv.with_tiles(1)
    opened: list[MemoryJournal] = []

    class Journals(MemoryJournalStore):
        def open(self, name: str) -> MemoryJournal:
            opened.append(super().open(name))
            return opened[-1]

    class Unreadable(MemoryTileMetadataStore):
        def query_by_bbox(self, *_args: object, **_named: object) -> NoReturn:
            raise OSError("the database is gone")

    journals = Journals()
    name = create_request().journal_name(area.provider.key_hash)
    journals.open(name).append(area.provider.tiles)
    metadata = Unreadable(clock=area.bench.clock)
    download = area.create_download(journals=journals, tile_metadata_store=metadata)
    with pytest.raises(OSError, match="the database is gone"):
        download.download_tiles_for_area(create_request())
    with pytest.raises(StorageError, match="it was closed"):
        opened[-1].flush()
