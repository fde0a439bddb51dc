"""Several workers under one command: which are started again, when, and how it ends."""

from itertools import pairwise

import pytest
from attrs import define, field

from tileferry.adapters.memory import ManualClock
from tileferry.application.control.worker_fleet import FleetRestart, WorkerFleet
from tileferry.domain.retry import RetryPolicy

DONE, USAGE, PARTIAL, KILLED = 0, 2, 3, -9
POLICY = RetryPolicy(max_attempts=4, base_delay=1.0, max_delay=2.0, jitter_enabled=False)


@define
class ScriptedMember:
    """A worker that ends at a time, or when it is stopped."""

    clock: ManualClock
    end_s: float
    code: int

    def poll(self) -> int | None:
        return self.code if self.clock.monotonic() >= self.end_s else None


@define
class FleetEnv:
    """Workers that live and end as scripted: how long and with which code, by number."""

    script: dict[int, list[tuple[float, int]]]
    stop_at_s: float = float("inf")
    clock: ManualClock = field(factory=ManualClock)
    started: list[tuple[int, float]] = field(factory=list)
    members: list[ScriptedMember] = field(factory=list)
    restarts: list[FleetRestart] = field(factory=list)
    stops: int = 0

    def start(self, number: int) -> ScriptedMember:
        now_s = self.clock.monotonic()
        self.started.append((number, round(now_s, 1)))
        lasts_s, code = self.script[number].pop(0)
        member = ScriptedMember(self.clock, now_s + lasts_s, code)
        self.members.append(member)
        return member

    def stop_all(self) -> None:
        self.stops += 1
        for member in self.members:
            member.end_s = min(member.end_s, self.clock.monotonic())

    def build(self) -> WorkerFleet:
        return WorkerFleet(
            name="w",
            count=len(self.script),
            start=self.start,
            stop_all=self.stop_all,
            clock=self.clock,
            is_stopping=lambda: self.clock.monotonic() >= self.stop_at_s,
            ended_codes={DONE, PARTIAL},
            final_codes={USAGE},
            policy=POLICY,
            on_restart=self.restarts.append,
        )


def test_fleet_ends_when_every_worker_has_ended() -> None:
    env = FleetEnv({1: [(5, DONE)], 2: [(1, PARTIAL)], 3: [(3, DONE)]})
    assert env.build().run() == [DONE, PARTIAL, DONE]
    assert [number for number, _ in env.started] == [1, 2, 3]
    assert env.clock.monotonic() == pytest.approx(5, abs=0.2)


def test_crashed_worker_is_started_again_later_each_time() -> None:
    env = FleetEnv({1: [(1, KILLED), (1, 7), (1, KILLED), (1, DONE)], 2: [(1, DONE)]})
    fleet = env.build()
    assert fleet.run() == [DONE, DONE]
    assert [(one.number, one.exit_code, one.delay_s) for one in env.restarts] == [
        (1, KILLED, 1.0),
        (1, 7, 2.0),
        (1, KILLED, 2.0),
    ]
    starts = [at_s for number, at_s in env.started if number == 1]
    gaps = [later - sooner for sooner, later in pairwise(starts)]
    assert gaps == pytest.approx([2.0, 3.0, 3.0], abs=0.3)
    assert not fleet.lost


def test_worker_that_ran_for_long_starts_with_a_short_delay_again() -> None:
    env = FleetEnv({1: [(1, KILLED), (1, KILLED), (100, KILLED), (1, KILLED), (1, DONE)]})
    env.build().run()
    assert [one.delay_s for one in env.restarts] == [1.0, 2.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("ends", "code"), [([(1.0, 7)] * 4, 7), ([(1.0, USAGE)], USAGE)], ids=["too often", "final"]
)
def test_fleet_drains_if_one_worker_cannot_be_kept_running(
    ends: list[tuple[float, int]], code: int
) -> None:
    env = FleetEnv({1: ends, 2: [(1_000, DONE)]})
    fleet = env.build()
    assert fleet.run() == [code, DONE]
    assert (fleet.lost, env.stops) == ([code], 1)


def test_fleet_that_stops_starts_no_worker_again() -> None:
    env = FleetEnv({1: [(1, KILLED)], 2: [(4, 130)]}, stop_at_s=1.5)
    assert env.build().run() == [DONE, 130]
    assert len(env.started) == 2
