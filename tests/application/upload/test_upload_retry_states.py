"""Any order of damage, repairs, rejections, lost disks, crashes and uploads of a flight."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.memory_upload_env import (
    PENDING,
    REQUEST,
    LostStore,
    MemoryUploadEnv,
    create_tile,
)

from tileferry.adapters.memory import MemoryFdrClient
from tileferry.application import C11RetryConfig, IdempotentRetryTileUploader
from tileferry.application.ports.fdr import GIVEUP_KIND
from tileferry.domain.canonical import JsonValue
from tileferry.domain.tiles import UploadBatchReport, VotingStatus

TILES = 4
ATTEMPTS_MAX = 3
NUMBERS = st.integers(0, TILES - 1)


class PowerLossError(Exception):
    """The process ends here."""


@define
class CrashingFdr:
    """A recorder that loses power before or after its next record, when it is told to."""

    inner: MemoryFdrClient
    crash: str | None = None

    def record(self, kind: str, payload: Mapping[str, JsonValue], *, durable: bool = False) -> None:
        assert durable, "a giveup must not be lost"
        crash, self.crash = self.crash, None
        if crash == "before":
            raise PowerLossError
        self.inner.record(kind, payload, durable=durable)
        if crash == "after":
            raise PowerLossError


@define
class Model:
    """What must hold of each tile."""

    damaged: set[int] = field(factory=set)
    poison: set[int] = field(factory=set)
    attempts: list[int] = field(factory=lambda: [0] * TILES)


class FlightUploads(RuleBasedStateMachine):
    @initialize()
    def capture(self) -> None:
        self.env = MemoryUploadEnv(count=TILES)
        self.fdr = CrashingFdr(MemoryFdrClient(clock=self.env.bench.clock, records_max=10_000))
        self.model = Model()
        self.crashed = False

    @rule(number=NUMBERS)
    def damage(self, number: int) -> None:
        if self.can_change(number):
            self.env.lose_tile_bytes(number)
            self.model.damaged.add(number)

    @rule(number=NUMBERS)
    def ingest_again(self, number: int) -> None:
        if self.can_change(number):
            self.env.capture(number)
            self.model.damaged.discard(number)

    @rule(number=NUMBERS, is_poison=st.booleans())
    def decide_about_tile(self, number: int, *, is_poison: bool) -> None:
        (self.model.poison.add if is_poison else self.model.poison.discard)(number)
        self.env.provider.poison = {create_tile(number) for number in self.model.poison}

    @rule()
    def upload_without_disk(self) -> None:
        before = self.attempts()
        self.upload(tile_store=LostStore())
        if not self.crashed:  # else, it may count earlier rejections
            assert self.attempts() == before, "an absent disk charges no tile"

    @rule(crash=st.sampled_from([None, None, "before", "after"]))
    def upload_from_disk(self, crash: str | None) -> None:
        pending = {number for number in range(TILES) if self.is_pending(number)}
        failing = pending & (self.model.damaged | self.model.poison)
        before = self.attempts()
        self.fdr.crash = crash
        report = self.upload()
        self.fdr.crash = None
        rise = [after - was for after, was in zip(self.attempts(), before, strict=True)]
        recovers, self.crashed = self.crashed, report is None
        if report is None or recovers:
            # Some of the failures are counted by the next call, without being sent again.
            assert max(rise) <= 1
            return
        assert {number for number in range(TILES) if self.is_pending(number)} <= failing
        assert all(count <= (number in failing) for number, count in enumerate(rise))
        assert report.tiles_acknowledged == len(pending - failing)

    def upload(self, **parts: Any) -> UploadBatchReport | None:
        inner = self.env.create_upload(attempts_max=ATTEMPTS_MAX, **parts)
        uploader = IdempotentRetryTileUploader(
            inner=inner,
            tile_metadata_store=self.env.metadata,
            fdr_client=self.fdr,  # type: ignore[arg-type]  # only records
            logger=logging.getLogger("tests.upload"),
            clock=self.env.bench.clock,
            config=C11RetryConfig(max_in_call_retries=0, max_per_tile_attempts=ATTEMPTS_MAX),
            on_counted=inner.close_counted,
        )
        try:
            return uploader.upload_pending_tiles(REQUEST)
        except PowerLossError:
            return None

    @invariant()
    def attempts_rise_to_their_bound_and_never_fall(self) -> None:
        if not hasattr(self, "env"):
            return
        for number, attempts in enumerate(self.attempts()):
            assert self.model.attempts[number] <= attempts <= ATTEMPTS_MAX
            self.model.attempts[number] = attempts

    @invariant()
    def each_giveup_is_recorded(self) -> None:
        if not hasattr(self, "env"):
            return
        recorded = {record.payload["tile_id"] for record in self.fdr.inner.records()}
        assert all(record.kind == GIVEUP_KIND for record in self.fdr.inner.records())
        for number, status in enumerate(self.env.list_statuses()):
            if status is VotingStatus.UPLOAD_GIVEUP:
                assert str(create_tile(number)) in recorded
                assert self.attempts()[number] == ATTEMPTS_MAX

    @invariant()
    def acknowledged_tiles_are_not_sent_again(self) -> None:
        if not hasattr(self, "env"):
            return
        keys: dict[int, set[str]] = {}
        for envelope, _body in self.env.provider.posts:
            for tile in envelope.batch.tiles:
                keys.setdefault(tile.tile_id.x - 19_000, set()).add(envelope.batch.key)
        posts = Counter({number: len(found) for number, found in keys.items()})
        for number, status in enumerate(self.env.list_statuses()):
            if status is VotingStatus.UPLOADED:
                assert posts[number] <= 1 + self.attempts()[number]

    def attempts(self) -> list[int]:
        return [row.upload_attempts for row in self.env.metadata.all_tiles()]

    def can_change(self, number: int) -> bool:
        """Return whether a tile's bytes may change.

        After a crash between the last count and the giveup, other bytes would be a new attempt.
        """
        return self.is_pending(number) and self.attempts()[number] < ATTEMPTS_MAX

    def is_pending(self, number: int) -> bool:
        return self.env.list_statuses()[number] is PENDING


TestFlightUploads = FlightUploads.TestCase
TestFlightUploads.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
