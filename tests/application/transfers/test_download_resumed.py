"""Downloading an area again: what an earlier run left is believed as far as it is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn

import pytest
from support.download_watcher import Watcher
from support.managers import logged
from support.memory_area import (
    MemoryArea,
    fault,
    request,
)

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


def test_journaled_tiles_that_are_gone_are_fetched_again(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryArea.of(4)
    area.download(marks_complete=False).download_tiles_for_area(request())
    gone = area.provider.tiles[2]
    area.metadata.forget([gone])
    area.provider.asked.clear()
    report = area.download(marks_complete=False).download_tiles_for_area(request())
    assert (report.outcome, report.tiles_downloaded) == (SUCCESS, 4)
    assert area.provider.fetched == [gone]
    (said,) = logged(caplog, "c11.journal.tiles_gone")
    assert "1 of its tiles are not in the cache any more" in said
    journal = area.journals.open(request().journal_name(area.provider.key_hash))
    assert journal.count == 4


@pytest.mark.parametrize("error", [OSError("no disk any more"), KeyboardInterrupt()])
def test_what_ends_a_resumed_run_while_it_lists_is_told_as_what_it_is(
    error: BaseException,
) -> None:
    class Breaking:
        @contextmanager
        def new(self, source: str) -> Iterator[ListingSpool]:
            with MemorySpoolStore().new(source) as self.spool:
                yield self

        def append(self, tile: TileSummary) -> None:
            if tile.tile_id == area.provider.tiles[2]:
                raise error
            self.spool.append(tile)

        def __iter__(self) -> Iterator[TileSummary]:
            return iter(self.spool)

    area = MemoryArea.of(4)
    area.download(marks_complete=False).download_tiles_for_area(request())
    watcher = Watcher()
    with pytest.raises(type(error)) as ended:
        area.download(spools=Breaking(), observer=watcher).download_tiles_for_area(request())
    assert ended.value is error
    (report,) = watcher.reports
    assert (report.tiles_requested, report.tiles_downloaded) == (3, 3)


@pytest.mark.parametrize("group", [2, 3])
def test_a_resumed_download_uses_what_it_does_not_fetch_again(
    monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    monkeypatch.setattr("tileferry.application.transfers.resuming._USED_TILES", group)
    area = MemoryArea.of(4)
    area.provider.faults[area.provider.tiles[3]] = [fault(ProviderFault.NOT_FOUND)]
    for later_s in (0.0, 3_600.0):
        area.bench.clock.pass_time(later_s)
        area.download().download_tiles_for_area(request())
    used = [tile.last_used_at - tile.stored_at for tile in area.metadata.all_tiles()]
    assert used == [timedelta(hours=1)] * 3 + [timedelta()]


def test_a_complete_journal_of_another_cache_is_not_believed() -> None:
    area = MemoryArea.of(3)
    area.download().download_tiles_for_area(request())
    emptied = MemoryArea(area.provider, journals=area.journals)
    report = emptied.download().download_tiles_for_area(request())
    assert (report.outcome, emptied.stored()) == (SUCCESS, area.provider.tiles)


def test_tiles_that_no_journal_names_are_fetched_though_they_are_there() -> None:
    area = MemoryArea.of(3)
    area.download(marks_complete=False).download_tiles_for_area(request())
    name = request().journal_name(area.provider.key_hash)
    area.journals.discard(name)
    area.journals.open(name).append(area.provider.tiles[:1])
    area.provider.asked.clear()
    area.download().download_tiles_for_area(request())
    assert area.provider.fetched == area.provider.tiles[1:]


def test_a_journal_is_closed_when_it_cannot_be_read() -> None:
    area = MemoryArea.of(1)
    opened: list[MemoryJournal] = []

    class Journals(MemoryJournalStore):
        def open(self, name: str) -> MemoryJournal:
            opened.append(super().open(name))
            return opened[-1]

    class Unreadable(MemoryTileMetadataStore):
        def query_by_bbox(self, *_args: object, **_named: object) -> NoReturn:
            raise OSError("the database is gone")

    journals = Journals()
    name = request().journal_name(area.provider.key_hash)
    journals.open(name).append(area.provider.tiles)
    metadata = Unreadable(clock=area.bench.clock)
    download = area.download(journals=journals, tile_metadata_store=metadata)
    with pytest.raises(OSError, match="the database is gone"):
        download.download_tiles_for_area(request())
    with pytest.raises(StorageError, match="it was closed"):
        opened[-1].flush()
