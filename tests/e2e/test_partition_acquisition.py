"""Acquiring a partition from the reference provider, over real HTTP, into both kinds of sinks."""

import errno
import logging
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from support.acquisitions import (
    LOGGER,
    SMALL_AREA,
    TILES,
    AcquisitionPlan,
    FakeDisk,
    execute_acquisition,
    open_acquisition,
)
from support.crash_processes import SOAK_FACTOR, run_process
from support.provider import RunningProvider, serve_provider
from support.raw_partitions import KEY, NOW, RUN, list_damages
from support.scripted_provider import KEY as SCRIPTED_KEY
from support.scripted_provider import ScriptedProvider
from support.segments import create_failing_calls

from tileferry.adapters.filesystem import FileRawSink
from tileferry.adapters.memory import ManualClock, MemoryRawSink
from tileferry.application.ports.raw_partitions import RawSink
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    SatelliteProviderError,
    StorageError,
)
from tileferry.domain.runs import RunId, VerdictOutcome
from tileferry.domain.tiles import DownloadTally, FreshnessLabel, SectorClass, TileId, TileSet

COUNT = len(TILES)


def tile_path(tile: TileId) -> str:
    return f"{tile.zoom}/{tile.x}/{tile.y}"


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[RunningProvider]:
    with serve_provider() as running:
        yield running


@pytest.fixture
def provider(shared_provider: RunningProvider) -> RunningProvider:
    """Return a provider that behaves and has seen nothing."""
    shared_provider.reset()
    return shared_provider


@pytest.fixture(params=["memory", "file"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> RawSink:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        return MemoryRawSink(clock=clock)
    return FileRawSink(root=tmp_path / "raw", clock=clock, logger=LOGGER)


def test_spec3_a_complete_extraction_passes(
    sink: RawSink, provider: RunningProvider, caplog: pytest.LogCaptureFixture
) -> None:
    with open_acquisition(sink, provider.url) as use_case, caplog.at_level(logging.INFO):
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
    assert (verdict.run_id, verdict.outcome, verdict.reasons) == (RUN, VerdictOutcome.PASSED, ())
    assert (sealed.key, sealed.run_id, sealed.tiles) == (KEY, RUN, COUNT)
    assert sink.find(KEY, RUN) == sealed
    assert provider.fetched == Counter(map(tile_path, TILES))
    with sink.open_reader(sealed) as reader, provider.client() as client:
        assert reader.header.tiles_listed == COUNT
        entries = {entry.tile_id: entry for entry in reader.iter_entries()}
        assert set(entries) == set(TILES)
        picture = client.get(f"/api/satellite/tiles/{tile_path(TILES[0])}").content
        assert reader.read_tile(entries[TILES[0]]) == picture
    kinds = [vars(record).get("kind") for record in caplog.records]
    assert kinds[-2:] == ["partition.sealed", "partition.judged"]


def test_logical_date_determines_what_is_fetched(sink: RawSink, provider: RunningProvider) -> None:
    """Seen: it was only a label."""
    with open_acquisition(sink, provider.url) as use_case:
        _, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
    day = KEY.logical_date
    dates = {line.query.partition("date=")[2][:10] for line in provider.requests}
    assert dates == {day.isoformat()}
    with sink.open_reader(sealed) as reader:
        assert reader.header.imagery_date == day
        assert {entry.produced_at.date() for entry in reader.iter_entries()} == {day}


@pytest.mark.parametrize(
    ("stale", "outcome"), [(5, VerdictOutcome.NEEDS_REVIEW), (6, VerdictOutcome.FAILED)]
)
def test_spec3_downgraded_tiles_need_review_up_to_the_limit_then_fail(
    sink: RawSink, provider: RunningProvider, stale: int, outcome: VerdictOutcome
) -> None:
    provider.set_faults(*({"fault": "stale", "tile": tile_path(tile)} for tile in TILES[:stale]))
    with open_acquisition(sink, provider.url, max_downgraded_share=5 / COUNT) as use_case:
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
    assert verdict.outcome is outcome
    (reason,) = verdict.reasons
    assert reason.startswith(f"{stale} of {COUNT} tiles downgraded")
    with sink.open_reader(sealed) as reader:
        labels = Counter(entry.freshness for entry in reader.iter_entries())
    assert labels[FreshnessLabel.DOWNGRADED] == stale


def test_spec3_missing_tiles_fail_the_partition_and_raw_data_is_kept(
    sink: RawSink, provider: RunningProvider
) -> None:
    provider.set_faults(*({"fault": "404", "tile": tile_path(tile)} for tile in TILES[:2]))
    with open_acquisition(sink, provider.url) as use_case:
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
        assert verdict.outcome is VerdictOutcome.FAILED
        assert verdict.explanation is not None
        assert verdict.explanation.startswith(f"2 of {COUNT} tiles missing")
        # Another try is another run, with a raw partition of its own.
        provider.set_faults()
        again, second = use_case.acquire(KEY, RunId("run-2"), SMALL_AREA)
    assert again.outcome is VerdictOutcome.PASSED
    assert (sink.find(KEY, RUN), sink.find(KEY, RunId("run-2"))) == (sealed, second)
    assert (sealed.tiles, second.tiles) == (COUNT - 2, COUNT)


def test_tiles_rejected_by_a_gate_count_against_the_partition(
    sink: RawSink, provider: RunningProvider
) -> None:
    provider.set_faults(
        *({"fault": "stale", "tile": tile_path(tile)} for tile in TILES[:2]),
        *({"fault": "sub-spec", "tile": tile_path(tile)} for tile in TILES[2:3]),
    )
    area = evolve(SMALL_AREA, sector_class=SectorClass.ACTIVE_CONFLICT)
    with open_acquisition(sink, provider.url) as strict:
        verdict, sealed = strict.acquire(KEY, RUN, area)
    assert verdict.outcome is VerdictOutcome.FAILED
    assert verdict.reasons[0].startswith(f"3 of {COUNT} tiles rejected by a gate")
    with open_acquisition(sink, provider.url, max_rejected_share=0.5) as lenient:
        assert lenient.judge_sealed(sealed).outcome is VerdictOutcome.NEEDS_REVIEW
    with sink.open_reader(sealed) as reader:
        tally = reader.header.tally
    assert (tally.tiles_rejected_freshness, tally.tiles_rejected_resolution) == (2, 1)


def test_empty_listing_fails_the_partition(sink: RawSink) -> None:
    with (
        ScriptedProvider([]).serve() as url,
        open_acquisition(sink, url, key=SCRIPTED_KEY) as use_case,
    ):
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
    assert (verdict.outcome, sealed.tiles) == (VerdictOutcome.FAILED, 0)
    assert verdict.reasons[0].startswith("the provider lists no tiles")


def test_run_resumes_after_an_outage_without_fetching_stored_tiles_again(
    sink: RawSink, provider: RunningProvider
) -> None:
    broken = tile_path(TILES[-1])
    provider.set_faults({"fault": "503", "tile": broken})
    with open_acquisition(sink, provider.url) as use_case:
        with pytest.raises(SatelliteProviderError):
            use_case.acquire(KEY, RUN, SMALL_AREA)
        assert sink.find(KEY, RUN) is None
        provider.set_faults()
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
    assert (verdict.outcome, sealed.tiles) == (VerdictOutcome.PASSED, COUNT)
    again = {tile for tile, count in provider.fetched.items() if count > 1}
    # What was still on its way when the outage ended the try was never taken in.
    assert broken in again
    assert len(again) <= 8


def test_spec3_sealed_run_is_only_judged_again(sink: RawSink, provider: RunningProvider) -> None:
    provider.set_faults({"fault": "stale", "tile": tile_path(TILES[0])})
    with open_acquisition(sink, provider.url) as use_case:
        first = use_case.acquire(KEY, RUN, SMALL_AREA)
        provider.reset()
        clock = use_case.clock
        assert isinstance(clock, ManualClock)
        clock.advance(400 * 86_400)  # by now every tile would be too old
        assert use_case.acquire(KEY, RUN, SMALL_AREA) == first
    assert first[0].outcome is VerdictOutcome.NEEDS_REVIEW
    assert provider.requests == []


def test_no_tile_is_fetched_without_free_space(sink: RawSink, provider: RunningProvider) -> None:
    with (
        open_acquisition(sink, provider.url, disk=FakeDisk(free=5_000)) as use_case,
        pytest.raises(CacheBudgetExceededError) as refusal,
    ):
        use_case.acquire(KEY, RUN, SMALL_AREA)
    assert refusal.value.available_bytes == 4_000
    assert provider.fetched == Counter()
    assert sink.find(KEY, RUN) is None


# On a disk


def create_file_sink(root: Path) -> FileRawSink:
    return FileRawSink(root=root, clock=ManualClock(NOW.timestamp()), logger=LOGGER)


def test_failed_seal_loses_no_tiles_or_counts(tmp_path: Path, provider: RunningProvider) -> None:
    """The gates' refusals are in the manifest, though the second try stores nothing."""
    provider.set_faults(*({"fault": "sub-spec", "tile": tile_path(tile)} for tile in TILES[:3]))
    sink = create_file_sink(tmp_path)
    full = evolve(sink, calls=create_failing_calls("rename", nth=2, error=errno.ENOSPC))
    with open_acquisition(full, provider.url) as use_case, pytest.raises(StorageError):
        use_case.acquire(KEY, RUN, SMALL_AREA)
    assert sink.find(KEY, RUN) is None
    with open_acquisition(sink, provider.url, max_rejected_share=1) as use_case:
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
    assert verdict.outcome is VerdictOutcome.NEEDS_REVIEW
    assert set(provider.fetched.values()) == {1}
    with sink.open_reader(sealed) as reader:
        assert reader.header.tiles_listed == COUNT
        assert reader.header.tally == DownloadTally(
            tiles_downloaded=COUNT - 3, tiles_rejected_resolution=3
        )


def test_invariant_16_damage_after_sealing_fails_the_partition(
    tmp_path: Path, provider: RunningProvider
) -> None:
    sink = create_file_sink(tmp_path)
    with open_acquisition(sink, provider.url) as use_case:
        passed, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
        assert passed.outcome is VerdictOutcome.PASSED
        (segment,) = tmp_path.rglob("*.seg")
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.chmod(0o600)
        segment.write_bytes(content)
        failed, _ = use_case.acquire(KEY, RUN, SMALL_AREA)
    assert failed.outcome is VerdictOutcome.FAILED
    (damage,) = list_damages(sink, sealed)
    assert failed.reasons == (f"1 damaged, first {damage.subject}: {damage.problem}",)


@pytest.mark.parametrize("seed", range(4 * SOAK_FACTOR))
def test_invariant_16_run_resumes_after_a_kill_at_any_time(
    tmp_path: Path, provider: RunningProvider, seed: int
) -> None:
    """Killed again and again, the run ends; what it stored is not asked for a second time."""
    chance = random.Random(seed)  # noqa: S311  # a repeatable test, not a secret
    plan = AcquisitionPlan(root=tmp_path, url=provider.url)
    sink = create_file_sink(tmp_path)
    stored: set[str] = set()
    for _ in range(4):
        before = Counter(provider.fetched)
        wanted = chance.randrange(COUNT)

        def far_enough(wanted: int = wanted, before: Counter[str] = before) -> bool:
            return sum((provider.fetched - before).values()) >= wanted

        code, _ = run_process(
            execute_acquisition, plan, kill_when=far_enough, after_s=chance.random() / 50
        )
        assert code in {0, -signal.SIGKILL}
        assert not stored & set(provider.fetched - before)
        if sink.find(KEY, RUN) is not None:
            break
        stored = read_journaled_tiles(sink)
    before = Counter(provider.fetched)
    assert run_process(execute_acquisition, plan) == (0, ("passed", COUNT))
    assert not stored & set(provider.fetched - before)


def read_journaled_tiles(sink: FileRawSink) -> set[str]:
    """Return the tiles that a killed try has journaled; each must have its row."""
    found = TileSet(SMALL_AREA.coverage)
    with sink.open(KEY, RUN, SMALL_AREA) as raw:
        for path in Path(raw.root, ".c11").glob("journal/*.json"):
            journal = raw.journals.open(path.name)
            journal.read_into(found)
            journal.close()
        rows = raw.tile_metadata_store.query_by_bbox(SMALL_AREA.bbox, SMALL_AREA.zoom_levels)
        there = {row.tile_id for row in rows}
    done = {tile for tile in TILES if tile in found}
    assert done <= there
    return {tile_path(tile) for tile in done}
