"""Invariants 7 and 8: the server restarts at the worst moments of an upload."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from support.cache_upload_env import ON_GROUND, REQUEST, CacheUploadEnv
from support.postgres_server import PostgresServerProcess
from support.provider import RunningProvider

from tileferry.application.ports.uploads import UploadProvider
from tileferry.domain.errors import DatabaseError
from tileferry.domain.tiles import Batch, PerTileStatus, SignedEnvelope, VotingStatus


@pytest.fixture
def provider(reference_provider: RunningProvider) -> RunningProvider:
    return reference_provider


@define
class HookedProvider:
    """A provider around whose answers something happens."""

    inner: UploadProvider
    before: Callable[[], None]
    after: Callable[[], None]

    @property
    def path(self) -> str:
        return self.inner.path

    def iter_body(self, batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
        return self.inner.iter_body(batch, contents)

    def post_batch(
        self, envelope: SignedEnvelope, contents: Iterable[bytes]
    ) -> tuple[PerTileStatus, ...]:
        self.before()
        answers = self.inner.post_batch(envelope, contents)
        self.after()
        return answers


def do_nothing() -> None:
    """Let it be."""


def upload_flight(
    site: CacheUploadEnv, *, before: Callable[[], None], after: Callable[[], None], **c11: Any
) -> Any:
    with site.open_container(upload_batch_tiles=4, **c11) as container:
        # Nothing is signed ahead: which call meets the restart is not left to chance.
        uploader = container.http_tile_uploader(flight_records=ON_GROUND, background=None)
        uploader._upload.provider = HookedProvider(uploader._upload.provider, before, after)
        return uploader.upload_pending_tiles(REQUEST)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_invariants_7_8_restart_around_a_response_loses_and_repeats_nothing(
    server: PostgresServerProcess, tmp_path: Path, provider: RunningProvider, moment: str, mode: str
) -> None:
    site = CacheUploadEnv(tmp_path, server.url, provider)
    site.capture(12)
    steps: dict[str, Callable[[], None]] = {"before": do_nothing, "after": do_nothing}
    report = upload_flight(site, **{**steps, moment: lambda: server.restart(mode)})
    assert report.tiles_acknowledged == 12
    assert {row.voting_status for row in site.read_rows().values()} == {VotingStatus.UPLOADED}
    assert Counter(site.list_sent()) == Counter(site.places)
    assert site.posts == 3


def test_invariants_7_8_unrecorded_response_is_requested_again(
    server: PostgresServerProcess, tmp_path: Path, provider: RunningProvider
) -> None:
    site = CacheUploadEnv(tmp_path, server.url, provider)
    site.capture(12)
    answers: list[Sequence[PerTileStatus]] = []

    def stop_at_the_second() -> None:
        answers.append(())
        if len(answers) == 2:
            server.stop("immediate")

    with pytest.raises(DatabaseError):
        upload_flight(site, before=do_nothing, after=stop_at_the_second, give_up_after_s=0)
    server.start()
    statuses = Counter(row.voting_status for row in site.read_rows().values())
    assert statuses == Counter({VotingStatus.UPLOADED: 4, VotingStatus.PENDING: 8})
    report = upload_flight(site, before=do_nothing, after=do_nothing)
    assert report.tiles_acknowledged == 8
    assert Counter(site.list_sent()) == Counter(
        site.places
    )  # the second batch was carried out once
    keys = [line.idempotency_key for line in provider.requests if line.method == "POST"]
    assert keys[1] == keys[2]
    assert len(keys) == 4
