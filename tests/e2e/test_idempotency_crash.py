"""Callers of one idempotency key that are killed at any moment: one result, for everybody.

The callers are real processes; their effect is a line in a file. Whoever dies between its effect
and its record leaves a line that no result names: nobody can know of it, so the next one does the
work again. But there is one line to a recorded result, none after it, and all get that result.
"""

import random
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from attrs import define, field, frozen
from support import jetstream_idempotency
from support.crash_processes import SOAK_FACTOR, processes
from support.idempotent_caller import (
    PAUSE_S_MAX,
    CallerPlan,
    create_call,
    create_caller_manager,
    run_caller,
)
from support.postgres_idempotency import age_records

from tileferry.adapters.postgres import Database, PostgresAuditLog, PostgresIdempotencyStore
from tileferry.application.ports.audit import AuditLog
from tileferry.application.ports.idempotency import IdempotencyStore
from tileferry.domain.audit import verify_chain
from tileferry.domain.idempotency import Completed, InProgress

STARTED_S_MAX = 30
ENDED_S_MAX = 60
MOMENT_S_MAX = 3 * PAUSE_S_MAX
LEASE = timedelta(seconds=60)


@frozen(kw_only=True)
class StoreEnv:
    """Where the records are, and how the lease of somebody who is dead comes to its end."""

    kind: str
    address: str
    """These two are what a process opens the store by."""
    store: IdempotencyStore
    pass_time: Callable[[timedelta], None]
    log: AuditLog | None = None
    """Where outcomes are logged with their records, if they are."""


@pytest.fixture(params=["postgres", "jetstream"])
def store_env(request: pytest.FixtureRequest) -> Iterator[StoreEnv]:
    if request.param == "postgres":
        database = request.getfixturevalue("database")
        yield postgres_store_env(database, request.getfixturevalue("database_url"))
        return
    server, bucket = request.getfixturevalue("nats_server"), request.getfixturevalue("nats_name")
    store = jetstream_idempotency.open_jetstream_store(server.url, bucket)
    yield StoreEnv(
        kind="jetstream",
        address=f"{server.url} {bucket}",
        store=store,
        pass_time=partial(jetstream_idempotency.age_jetstream_records, store.bucket),
    )
    store.bucket.connection.close()


def postgres_store_env(database: Database, address: str) -> StoreEnv:
    log = PostgresAuditLog(database=database)
    return StoreEnv(
        kind="postgres",
        address=address,
        store=PostgresIdempotencyStore(database=database, audit_sink=log),
        pass_time=lambda passed: age_records(database, passed),
        log=log,
    )


@define
class Caller:
    """A process that was started, and how it ended."""

    name: str
    process: ForkServerProcess
    _line: Connection

    def go(self) -> None:
        """Have it begin."""
        assert self._line.poll(STARTED_S_MAX), "it says when it is connected"
        self._line.send("go")
        self._line.close()

    @property
    def was_killed(self) -> bool:
        return self.process.exitcode == -signal.SIGKILL


@define(kw_only=True)
class CrashCampaign:
    """One key after the other, each with callers that seldom live long."""

    site: StoreEnv
    folder: Path
    chance: random.Random
    kills: int = 0
    orphans: int = 0
    """Effects whose callers were killed before they could record them."""
    _numbers: int = field(default=0, init=False)

    def start(self, key: str) -> Caller:
        self._numbers += 1
        plan = CallerPlan(
            kind=self.site.kind,
            address=self.site.address,
            key=key,
            name=f"caller {self._numbers}",
            effects=self.folder / f"{key} effects",
            results=self.folder,
            seed=self.chance.getrandbits(32),
        )
        here, there = processes.Pipe()
        process = processes.Process(target=run_caller, args=(plan, there))
        process.start()
        there.close()
        return Caller(plan.name, process, here)

    def run_round(self, key: str) -> None:
        """Let two callers race, kill one or both at any moment, and have others finish."""
        callers = [self.start(key) for _ in range(3)]
        racers, late = callers[:2], callers[2]
        victims = self.chance.choice([racers[:1], racers[1:], racers])
        for racer in racers:
            racer.go()
        racers[0].process.join(self.chance.uniform(0, MOMENT_S_MAX))
        for victim in victims:
            victim.process.kill()
        for victim in victims:
            victim.process.join()
        late.go()
        self.finish(key, callers)
        self.check(key, callers)

    def finish(self, key: str, callers: list[Caller]) -> None:
        """Wait for all; the leases of the dead come to their end."""
        for caller in callers:
            for _ in range(int(ENDED_S_MAX / 0.05)):
                caller.process.join(0.05)
                if caller.process.exitcode is not None:
                    break
                self.expire_leases_of_killed(key, callers)
            assert caller.process.exitcode in {0, -signal.SIGKILL}
        self.kills += sum(caller.was_killed for caller in callers)

    def expire_leases_of_killed(self, key: str, callers: list[Caller]) -> None:
        """Let time pass while a dead caller has the key: nobody else can hold it by then."""
        record = self.site.store.find(key)
        if record is None or not isinstance(record.state, InProgress):
            return
        if record.state.lease_expires_at > datetime.now(UTC):  # else anybody may have it by now
            dead = [caller.name for caller in callers if caller.was_killed]
            if record.owner.split(":")[0] in dead:
                self.site.pass_time(LEASE)

    def check(self, key: str, callers: list[Caller]) -> None:
        effects = (self.folder / f"{key} effects").read_text(encoding="utf-8").splitlines()
        results = [
            (self.folder / caller.name).read_text(encoding="utf-8")
            for caller in callers
            if not caller.was_killed
        ]
        # All get one result, which names an effect, and nothing happened after that one.
        assert results
        assert set(results) == {effects[-1]}
        record = self.site.store.find(key)
        assert record is not None
        assert isinstance(record.state, Completed)
        # Nobody does it twice, and whoever did it without a record is dead.
        doers = [effect.split(":")[0] for effect in effects]
        assert len(set(doers)) == len(doers) <= record.epoch
        assert set(doers[:-1]) <= {caller.name for caller in callers if caller.was_killed}
        self.orphans += len(doers) - 1

        def again() -> str:
            pytest.fail("the result is there")

        assert (
            create_caller_manager(self.site.store, "late").run_once(again, create_call(key))
            == effects[-1]
        )
        if self.site.log is not None:
            check_logged_once(self.site.log, key)


def check_logged_once(log: AuditLog, key: str) -> None:
    bodies = [entry.body for entry in log.find_entries(key)]
    assert len([body for body in bodies if b'"action":"record"' in body]) == 1
    assert verify_chain(log.iter_entries(), expected_head=log.read_head()).intact


def test_spec2_killed_callers_of_one_key_leave_one_shared_result(
    tmp_path: Path, store_env: StoreEnv
) -> None:
    chance = random.Random(5)  # noqa: S311  # a repeatable test, not a secret
    campaign = CrashCampaign(site=store_env, folder=tmp_path, chance=chance)
    number = 0
    while campaign.kills < 8 * SOAK_FACTOR or not campaign.orphans:
        number += 1
        campaign.run_round(f"key-{number}")
