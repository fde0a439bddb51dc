"""The operators of the queue, who make mistakes: a refused command must change nothing."""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from attrs import define

from simulation.scheduler import Process
from simulation.world import World
from tileferry.application.control.partition_control import OperatorOverride
from tileferry.domain.partitions import Partition, PartitionStatus
from tileferry.domain.runs import Run, RunStatus
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import TileId
from tileferry.domain.work import AcquirePartition

if TYPE_CHECKING:
    from simulation.scenarios.queue import QueueScenario

OVERRIDE = OperatorOverride(by="ann@desk", reason="simulated")
SUSPENDED_S_MAX = 3_600.0
DRAIN_S = 1.0
"""How long a worker that is to stop may go on with its run."""


@define(eq=False)
class QueueOperators:
    """The actions of operators, each in its own process."""

    scenario: "QueueScenario"

    @property
    def world(self) -> World:
        return self.scenario.world

    def list_actions(self, tiles: Sequence[TileId]) -> dict[str, Callable[[Process], object]]:
        """Return all actions; the last two are those of the provider of these tiles."""
        absent = self.scenario.provider.absent
        actions: dict[str, Callable[[Process], object]] = {
            "cancel ": self.cancel_run,
            "resubmit ": self.resubmit,
            "change mind ": self.cancel_and_repeat,
            # Often: few other things show a worker that has to stop, or that has lost its run.
            **{f"stop worker {n} ": self.stop_worker for n in range(3)},
            **{f"suspend until replaced {n} ": self.suspend_until_replaced for n in range(4)},
            "retry run ": self.retry_run,
            "retry partition ": partial(self.retry_partition, PartitionStatus.FAILED),
            "reprocess partition ": partial(self.retry_partition, PartitionStatus.SUCCESS),
            "mark terminal ": self.mark_terminal,
            "restock ": lambda _process: absent.clear(),
            "run out ": lambda _process: absent.update(tiles),
        }
        return {name: partial(self.wait_after, action) for name, action in actions.items()}

    def wait_after(self, action: Callable[[Process], object], process: Process) -> None:
        """Let an operator do something, and wait for what follows from it."""
        action(process)
        self.scenario.wait_for_end()

    def pick_run(self, *statuses: RunStatus) -> Run | None:
        """Return a run as soon as one is in such a status, or by mistake any run."""
        picked: Run | None = self._pick_by_status("runs", statuses)
        return picked

    def pick_partition(self, *statuses: PartitionStatus) -> Partition | None:
        """Return a partition as soon as one is in such a status, or by mistake any partition."""
        picked: Partition | None = self._pick_by_status("partitions", statuses)
        return picked

    def _pick_by_status(self, table: str, statuses: Sequence[str], *, mistakes: float = 0.2) -> Any:
        is_mistaken = self.world.schedule.random() < mistakes
        while True:
            known = getattr(self.scenario.work._books, table).values()
            items = [one for one in known if is_mistaken or one.status in statuses]
            if items or is_mistaken or not self.scenario.is_busy():
                return self._pick(items)
            self.world.wait(20.0)

    def _pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.world.schedule.random() * len(items))] if items else None

    def resubmit(self, process: Process) -> None:
        job = self._pick(
            [job for job in self.scenario.jobs if not isinstance(job, AcquirePartition)]
        )
        self.scenario.create_control(process).submit(job, actor=Actor.OPERATOR)

    def stop_worker(self, _process: Process) -> None:
        """Ask a worker to stop: it ends its run, or returns it when the drain time is over."""
        found = self.find_busy(mistakes=0.2)
        worker = self.world.processes["worker-0"] if found is None else found[0]
        if worker.alive and worker.data.get("stopping_s") == inf:
            self.scenario.stops.note_signal(worker, lambda: worker.data.get("stops", 0))
            worker.data["stopping_s"] = self.world.time_s
            self.scenario.work.submitted.set()
            self.world.call_later(DRAIN_S, partial(self.end_sleep, worker))

    def find_busy(self, *, mistakes: float) -> tuple[Process, Run] | None:
        """Return a worker as soon as one is busy, and its run."""
        run = self._pick_by_status("runs", [RunStatus.PROCESSING], mistakes=mistakes)
        owner = None if run is None else run.lease_owner
        for process in self.world.processes.values():
            if owner is not None and process.data.get("worker") == owner:
                return process, run
        return None

    def end_sleep(self, worker: Process) -> None:
        """End the sleep of a worker whose drain time is over, as its clock does it."""
        main = next(iter(worker.tasks), None)
        if (
            main is not None
            and self.scenario.is_drained(worker)
            and worker.data.get(f"sleeping {main.name}")
        ):
            self.world.wake(main, KeyboardInterrupt())

    def suspend_until_replaced(self, _process: Process) -> None:
        """Close the lid of a laptop whose worker is busy until another one has its run."""
        found = self.find_busy(mistakes=0.0)
        if found is None:
            return
        process, run = found
        process.stopped_until_s = self.world.time_s + SUSPENDED_S_MAX

        def resume() -> None:
            process.stopped_until_s = self.world.time_s
            self.world.resume(process)

        # Soon after the other worker has begun.
        delay_s = 5.0 * self.world.schedule.random()
        self.scenario.leases.on_claim[run.run_id] = lambda: self.world.call_later(delay_s, resume)

    def cancel_run(self, process: Process) -> None:
        run = self.pick_run(RunStatus.PROCESSING, RunStatus.DISCOVERED)
        if run is not None:
            self.scenario.create_control(process).cancel(run.run_id, reason="simulated", by="ann")

    def retry_run(self, process: Process) -> None:
        run = self.pick_run(RunStatus.ERROR)
        if run is not None:
            self.scenario.create_control(process).retry_now(
                run.run_id, reason="simulated", by="ann"
            )

    def cancel_and_repeat(self, process: Process) -> None:
        """Cancel a run, submit its work again, and then want the cancelled run back."""
        control = self.scenario.create_control(process)
        job = self._pick(
            [job for job in self.scenario.jobs if not isinstance(job, AcquirePartition)]
        )
        run, _ = control.submit(job, actor=Actor.OPERATOR)
        control.cancel(run.run_id, reason="simulated", by="ann")
        control.submit(job, actor=Actor.OPERATOR)
        control.retry_now(run.run_id, reason="simulated", by="ann")

    def retry_partition(self, status: PartitionStatus, process: Process) -> None:
        """Retry a partition; sometimes twice, and sometimes by mistake."""
        partition = self.pick_partition(status)
        if partition is None:
            return
        partitions = self.scenario.create_partitions(process)
        (tried,) = partitions.retry([partition.key], OVERRIDE)
        regret = self.world.schedule.random()
        if regret < 0.3:
            partitions.retry([partition.key], OVERRIDE)
        elif regret < 0.6 and tried.active_run_id is not None:
            self.scenario.create_control(process).cancel(
                tried.active_run_id, reason="regret", by="ann"
            )

    def mark_terminal(self, process: Process) -> None:
        partition = self.pick_partition(PartitionStatus.FAILED)
        if partition is not None:
            self.scenario.create_partitions(process).mark_terminal([partition.key], OVERRIDE)
