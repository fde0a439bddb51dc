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
from support.acquisitions import LOGGER, SMALL, TILES, AcquisitionPlan, Disk, acquire, acquisition
from support.killed_process import run_process
from support.provider import RunningProvider, running_provider
from support.raw_partitions import KEY, NOW, RUN, damages
from support.scripted_provider import KEY as SCRIPTED_KEY
from support.scripted_provider import ScriptedProvider
from support.segments import failing
from support.soak import TIMES

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


def short(tile: TileId) -> str:
    return f"{tile.zoom}/{tile.x}/{tile.y}"


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[RunningProvider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def provider(shared_provider: RunningProvider) -> RunningProvider:
    """Return a provider that behaves and has seen nothing."""
    shared_provider.start_over()
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
    with acquisition(sink, provider.url) as use_case, caplog.at_level(logging.INFO):
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL)
    assert (verdict.run_id, verdict.outcome, verdict.reasons) == (RUN, VerdictOutcome.PASSED, ())
    assert (sealed.key, sealed.run_id, sealed.tiles) == (KEY, RUN, COUNT)
    assert sink.find(KEY, RUN) == sealed
    assert provider.fetched == Counter(map(short, TILES))
    with sink.reader(sealed) as reader, provider.client() as client:
        assert reader.header.tiles_listed == COUNT
        entries = {entry.tile_id: entry for entry in reader.entries()}
        assert set(entries) == set(TILES)
        picture = client.get(f"/api/satellite/tiles/{short(TILES[0])}").content
        assert reader.read_tile(entries[TILES[0]]) == picture
    kinds = [vars(record).get("kind") for record in caplog.records]
    assert kinds[-2:] == ["partition.sealed", "partition.judged"]


@pytest.mark.parametrize(
    ("stale", "outcome"), [(5, VerdictOutcome.NEEDS_REVIEW), (6, VerdictOutcome.FAILED)]
)
def test_spec3_downgraded_tiles_are_for_a_human_up_to_their_share(
    sink: RawSink, provider: RunningProvider, stale: int, outcome: VerdictOutcome
) -> None:
    provider.misbehave(*({"fault": "stale", "tile": short(tile)} for tile in TILES[:stale]))
    with acquisition(sink, provider.url, max_downgraded_share=5 / COUNT) as use_case:
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL)
    assert verdict.outcome is outcome
    (reason,) = verdict.reasons
    assert reason.startswith(f"{stale} of {COUNT} tiles downgraded")
    with sink.reader(sealed) as reader:
        labels = Counter(entry.freshness for entry in reader.entries())
    assert labels[FreshnessLabel.DOWNGRADED] == stale


def test_spec3_missing_tiles_fail_the_partition_and_the_raw_data_stays(
    sink: RawSink, provider: RunningProvider
) -> None:
    provider.misbehave(*({"fault": "404", "tile": short(tile)} for tile in TILES[:2]))
    with acquisition(sink, provider.url) as use_case:
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL)
        assert verdict.outcome is VerdictOutcome.FAILED
        assert verdict.explanation is not None
        assert verdict.explanation.startswith(f"2 of {COUNT} tiles missing")
        # Another try is another run, with a raw partition of its own.
        provider.misbehave()
        again, second = use_case.acquire(KEY, RunId("run-2"), SMALL)
    assert again.outcome is VerdictOutcome.PASSED
    assert (sink.find(KEY, RUN), sink.find(KEY, RunId("run-2"))) == (sealed, second)
    assert (sealed.tiles, second.tiles) == (COUNT - 2, COUNT)


def test_tiles_that_a_gate_refuses_are_holes(sink: RawSink, provider: RunningProvider) -> None:
    provider.misbehave(
        *({"fault": "stale", "tile": short(tile)} for tile in TILES[:2]),
        *({"fault": "sub-spec", "tile": short(tile)} for tile in TILES[2:3]),
    )
    area = evolve(SMALL, sector_class=SectorClass.ACTIVE_CONFLICT)
    with acquisition(sink, provider.url) as strict:
        verdict, sealed = strict.acquire(KEY, RUN, area)
    assert verdict.outcome is VerdictOutcome.FAILED
    assert verdict.reasons[0].startswith(f"3 of {COUNT} tiles refused by a gate")
    with acquisition(sink, provider.url, max_rejected_share=0.5) as lenient:
        assert lenient.judged(sealed).outcome is VerdictOutcome.NEEDS_REVIEW
    with sink.reader(sealed) as reader:
        tally = reader.header.tally
    assert (tally.tiles_rejected_freshness, tally.tiles_rejected_resolution) == (2, 1)


def test_a_provider_that_lists_nothing_is_no_pass(sink: RawSink) -> None:
    with (
        ScriptedProvider([]).served() as url,
        acquisition(sink, url, key=SCRIPTED_KEY) as use_case,
    ):
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL)
    assert (verdict.outcome, sealed.tiles) == (VerdictOutcome.FAILED, 0)
    assert verdict.reasons[0].startswith("0 tiles are listed")


def test_an_outage_is_raised_and_the_same_run_goes_on_and_fetches_none_twice(
    sink: RawSink, provider: RunningProvider
) -> None:
    broken = short(TILES[-1])
    provider.misbehave({"fault": "503", "tile": broken})
    with acquisition(sink, provider.url) as use_case:
        with pytest.raises(SatelliteProviderError):
            use_case.acquire(KEY, RUN, SMALL)
        assert sink.find(KEY, RUN) is None
        provider.misbehave()
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL)
    assert (verdict.outcome, sealed.tiles) == (VerdictOutcome.PASSED, COUNT)
    again = {tile for tile, count in provider.fetched.items() if count > 1}
    # What was still on its way when the outage ended the try was never taken in.
    assert broken in again
    assert len(again) <= 8


def test_spec3_a_run_that_is_sealed_is_only_judged_again(
    sink: RawSink, provider: RunningProvider
) -> None:
    provider.misbehave({"fault": "stale", "tile": short(TILES[0])})
    with acquisition(sink, provider.url) as use_case:
        first = use_case.acquire(KEY, RUN, SMALL)
        provider.start_over()
        clock = use_case.clock
        assert isinstance(clock, ManualClock)
        clock.pass_time(400 * 86_400)  # by now every tile would be too old
        assert use_case.acquire(KEY, RUN, SMALL) == first
    assert first[0].outcome is VerdictOutcome.NEEDS_REVIEW
    assert provider.requests == []


def test_without_room_no_tile_is_fetched(sink: RawSink, provider: RunningProvider) -> None:
    with (
        acquisition(sink, provider.url, disk=Disk(free=5_000)) as use_case,
        pytest.raises(CacheBudgetExceededError) as refusal,
    ):
        use_case.acquire(KEY, RUN, SMALL)
    assert refusal.value.available_bytes == 4_000
    assert provider.fetched == Counter()
    assert sink.find(KEY, RUN) is None


# On a disk


def file_sink(root: Path) -> FileRawSink:
    return FileRawSink(root=root, clock=ManualClock(NOW.timestamp()), logger=LOGGER)


def test_a_seal_that_fails_costs_no_tile_and_no_count(
    tmp_path: Path, provider: RunningProvider
) -> None:
    """The gates' refusals are in the manifest, though the second try stores nothing."""
    provider.misbehave(*({"fault": "sub-spec", "tile": short(tile)} for tile in TILES[:3]))
    sink = file_sink(tmp_path)
    full = evolve(sink, calls=failing("rename", nth=2, error=errno.ENOSPC))
    with acquisition(full, provider.url) as use_case, pytest.raises(StorageError):
        use_case.acquire(KEY, RUN, SMALL)
    assert sink.find(KEY, RUN) is None
    with acquisition(sink, provider.url, max_rejected_share=1) as use_case:
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL)
    assert verdict.outcome is VerdictOutcome.NEEDS_REVIEW
    assert set(provider.fetched.values()) == {1}
    with sink.reader(sealed) as reader:
        assert reader.header.tiles_listed == COUNT
        assert reader.header.tally == DownloadTally(
            tiles_downloaded=COUNT - 3, tiles_rejected_resolution=3
        )


def test_invariant_16_damage_after_the_seal_fails_the_partition(
    tmp_path: Path, provider: RunningProvider
) -> None:
    sink = file_sink(tmp_path)
    with acquisition(sink, provider.url) as use_case:
        passed, sealed = use_case.acquire(KEY, RUN, SMALL)
        assert passed.outcome is VerdictOutcome.PASSED
        (segment,) = tmp_path.rglob("*.seg")
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.chmod(0o600)
        segment.write_bytes(content)
        failed, _ = use_case.acquire(KEY, RUN, SMALL)
    assert failed.outcome is VerdictOutcome.FAILED
    (damage,) = damages(sink, sealed)
    assert failed.reasons == (f"1 found damaged, first {damage.subject}: {damage.problem}",)


@pytest.mark.parametrize("seed", range(4 * TIMES))
def test_invariant_16_a_kill_at_any_moment_and_the_run_goes_on(
    tmp_path: Path, provider: RunningProvider, seed: int
) -> None:
    """Killed again and again, the run ends; what it stored is not asked for a second time."""
    chance = random.Random(seed)  # noqa: S311  # a repeatable test, not a secret
    plan = AcquisitionPlan(root=tmp_path, url=provider.url)
    sink = file_sink(tmp_path)
    stored: set[str] = set()
    for _ in range(4):
        before = Counter(provider.fetched)
        wanted = chance.randrange(COUNT)

        def far_enough(wanted: int = wanted, before: Counter[str] = before) -> bool:
            return sum((provider.fetched - before).values()) >= wanted

        code, _ = run_process(acquire, plan, kill_when=far_enough, after_s=chance.random() / 50)
        assert code in {0, -signal.SIGKILL}
        assert not stored & set(provider.fetched - before)
        if sink.find(KEY, RUN) is not None:
            break
        stored = journaled(sink)
    before = Counter(provider.fetched)
    assert run_process(acquire, plan) == (0, ("passed", COUNT))
    assert not stored & set(provider.fetched - before)


def journaled(sink: FileRawSink) -> set[str]:
    """Return the tiles that a killed try has journaled; each must have its row."""
    found = TileSet(SMALL.coverage)
    with sink.open(KEY, RUN, SMALL) as raw:
        for path in Path(raw.root, ".c11").glob("journal/*.json"):
            journal = raw.journals.open(path.name)
            journal.read_into(found)
            journal.close()
        rows = raw.tile_metadata_store.query_by_bbox(SMALL.bbox, SMALL.zoom_levels)
        there = {row.tile_id for row in rows}
    done = {tile for tile in TILES if tile in found}
    assert done <= there
    return {short(tile) for tile in done}
