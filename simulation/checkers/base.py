"""What every checker can do."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from attrs import define

from simulation.world import Call, World


@define(eq=False)
class Checker:
    """Watches calls. A problem is reported by ``fail``, which ends the history."""

    invariants: ClassVar[tuple[int, ...]] = ()
    """The numbers of the invariants that it checks."""
    world: World

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        """Return what is called after which calls."""
        return {}

    def after_power_loss(self) -> None:
        """Check what the disks have left."""

    def at_end(self) -> None:
        """Check the state at the end of the history, when nothing runs any more."""

    def require(self, holds: object, problem: str) -> None:
        """Report a problem unless something holds."""
        if not holds:
            self.fail(problem)

    def fail(self, problem: str) -> None:
        """Report a problem."""
        self.world.fail(type(self).__name__, self.invariants, problem)
