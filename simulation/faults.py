"""What can go wrong, and the plan of a seed: an explicit list of faults, each at one call.

A fault is bound to the n-th call of a name (``journals.journal.flush``), or of all names. If it
cannot hit that call, it hits the next one that it can. So a plan can be shrunk: without some of its
faults, the others still happen.
"""

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from attrs import field, frozen

from tileferry.domain.errors import DatabaseError, SatelliteProviderError, StorageError
from tileferry.domain.tiles import ProviderFault


class PortKind(StrEnum):
    """What is behind a port; it decides how calls fail."""

    DISK = "disk"
    DISK_READ = "disk_read"
    DATABASE = "database"
    PROVIDER = "provider"
    LOCAL = "local"
    """Nothing that can fail; but the process may die there."""


class FaultKind(StrEnum):
    """What happens to a call, or from a call on."""

    ERROR_BEFORE = "error_before"
    ERROR_AFTER = "error_after"
    """The call takes effect, but its answer is lost."""
    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"
    POWER_LOSS = "power_loss"
    DELAY = "delay"
    """The call is late."""
    STOP = "stop"
    """The whole process stands still, as after SIGSTOP."""
    CLOCK_JUMP = "clock_jump"
    OPERATOR = "operator"
    DISK_FULL = "disk_full"
    DATABASE_DOWN = "database_down"
    OUTAGE = "outage"
    THROTTLE = "throttle"
    LYING = "lying"
    FLAPPING = "flapping"


AFTER = frozenset({FaultKind.ERROR_AFTER, FaultKind.CRASH_AFTER})
ANY_PORT = frozenset(PortKind)
FALLIBLE = ANY_PORT - {PortKind.LOCAL}
TARGETS: dict[FaultKind, frozenset[PortKind]] = {
    FaultKind.ERROR_BEFORE: FALLIBLE,
    FaultKind.ERROR_AFTER: FALLIBLE,
    FaultKind.CRASH_BEFORE: ANY_PORT,
    FaultKind.CRASH_AFTER: ANY_PORT,
    FaultKind.POWER_LOSS: ANY_PORT,
    FaultKind.DELAY: ANY_PORT,
    FaultKind.STOP: ANY_PORT,
    FaultKind.CLOCK_JUMP: ANY_PORT,
    FaultKind.OPERATOR: ANY_PORT,
    FaultKind.DISK_FULL: frozenset({PortKind.DISK}),
    FaultKind.DATABASE_DOWN: frozenset({PortKind.DATABASE}),
    FaultKind.OUTAGE: frozenset({PortKind.PROVIDER}),
    FaultKind.THROTTLE: frozenset({PortKind.PROVIDER}),
    FaultKind.LYING: frozenset({PortKind.PROVIDER}),
    FaultKind.FLAPPING: frozenset({PortKind.PROVIDER}),
}
_LASTING_S = {
    FaultKind.DELAY: (0.1, 60.0),
    FaultKind.STOP: (1.0, 400.0),
    FaultKind.DISK_FULL: (1.0, 120.0),
    FaultKind.DATABASE_DOWN: (0.5, 60.0),
    FaultKind.OUTAGE: (1.0, 3_000.0),
    FaultKind.THROTTLE: (1.0, 300.0),
    FaultKind.LYING: (1.0, 120.0),
    FaultKind.FLAPPING: (1.0, 300.0),
}
_FLAPPING_SHARE = 0.5
_JUMPS_S = (-86_400.0, -3_600.0, -1.0, 1.0, 3_600.0, 86_400.0)


@frozen(kw_only=True)
class Fault:
    """One fault: what, where and for how long."""

    number: int
    kind: FaultKind
    call: str | None = None
    """``None``: ``nth`` counts all calls of the history."""
    nth: int = 1
    lasts_s: float = 0.0
    """It happens to all calls that it can hit until then; 0: to one call."""
    amount: float = 0.0
    action: str = ""

    def can_hit(self, kind: PortKind) -> bool:
        """Return whether it can begin at a call of such a port."""
        return kind in TARGETS[self.kind]

    def hits(self, kind: PortKind, name: str) -> bool:
        """Return whether it happens to this call while it lasts."""
        if self.kind in {FaultKind.STOP, FaultKind.DELAY}:
            return False  # it begins once
        if self.kind in {FaultKind.ERROR_BEFORE, FaultKind.ERROR_AFTER}:
            return self.call in {None, name} and self.can_hit(kind)
        return self.can_hit(kind)

    @property
    def is_chancy(self) -> bool:
        """Whether chance decides about each call."""
        return self.kind in {FaultKind.FLAPPING, FaultKind.LYING, FaultKind.THROTTLE}

    def build_error(self, kind: PortKind, name: str, drawn: float) -> Exception | None:
        """Return the error of a call, as an adapter of such a port raises it."""
        match self.kind:
            case FaultKind.DISK_FULL:
                return create_disk_error(name, "No space left on device")
            case FaultKind.THROTTLE:
                wait_s = (None, 0.0, 2.0, 30.0, 10.0**9)[int(drawn * 5)]
                return SatelliteProviderError(
                    reason="HTTP 429",
                    fault=ProviderFault.RATE_LIMITED,
                    status=429,
                    retry_after_s=wait_s,
                )
            case FaultKind.LYING:
                lie = (ProviderFault.DAMAGED, ProviderFault.TRUNCATED, ProviderFault.SCHEMA)
                return create_provider_error(lie[int(drawn * 3)])
            case FaultKind.FLAPPING if drawn < _FLAPPING_SHARE:
                return None
            case _:
                return create_error(kind, name, is_late=self.kind in AFTER)

    def __str__(self) -> str:
        place = f"call {self.nth}" if self.call is None else f"{self.call} #{self.nth}"
        more = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        more += f" by {self.amount:+.0f} s" if self.amount else ""
        return f"{self.number}: {self.kind.value} {self.action}at {place}{more}"


def create_error(kind: PortKind, name: str, *, is_late: bool) -> Exception:
    """Return the error of a failed call."""
    match kind:
        case PortKind.DATABASE:
            return DatabaseError(problem=f"connection lost at {name}", remedy="try again")
        case PortKind.PROVIDER:
            fault = ProviderFault.TIMED_OUT if is_late else ProviderFault.UNREACHABLE
            return create_provider_error(fault)
        case _:
            return create_disk_error(name, "Input/output error")


def create_disk_error(name: str, problem: str) -> StorageError:
    return StorageError(action="use", path=name, problem=problem, remedy="check the disk")


def create_provider_error(fault: ProviderFault) -> SatelliteProviderError:
    return SatelliteProviderError(reason=str(fault), fault=fault)


def _to_tuple(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    return tuple(faults)


@frozen
class FaultPlan:
    """The faults of one history."""

    faults: tuple[Fault, ...] = field(default=(), converter=_to_tuple)

    def keep(self, numbers: Sequence[int]) -> "FaultPlan":
        """Return the plan with only these faults."""
        wanted = set(numbers)
        return FaultPlan([fault for fault in self.faults if fault.number in wanted])


NO_PLAN = FaultPlan()


@frozen(kw_only=True)
class FaultMenu:
    """What the faults of a scenario can be: its calls, as a history without faults has them."""

    calls: dict[str, int]
    """How often each is made."""
    kinds: dict[str, PortKind]
    actions: tuple[str, ...] = ()
    early: float = 1.0
    """Above 1, faults come early: for scenarios whose histories differ much in length."""
    lasts_s_max: float = 3_000.0
    """No fault lasts longer."""
    weights: dict[FaultKind, float] = field(factory=dict)
    """How often a kind is drawn, if not once as often as the others; 0: never."""


def draw_plan(seed: int, menu: FaultMenu, *, faults_max: int = 8) -> FaultPlan:
    """Return the faults of a seed; about one seed in eight has none."""
    chance = Random(f"{seed}/faults")
    return FaultPlan(
        [_draw_fault(number, chance, menu) for number in range(chance.randint(0, faults_max))]
    )


def _draw_fault(number: int, chance: Random, menu: FaultMenu) -> Fault:
    kinds = [kind for kind in FaultKind if menu.actions or kind is not FaultKind.OPERATOR]
    kind = chance.choices(kinds, [menu.weights.get(one, 1.0) for one in kinds])[0]
    call: str | None = None
    nth = _draw_number(chance, max(1, 2 * sum(menu.calls.values())), menu.early)
    if chance.random() < 0.6:  # rare calls as often as common ones
        names = [name for name, port in menu.kinds.items() if port in TARGETS[kind]]
        if names:
            call = chance.choice(sorted(names))
            nth = _draw_number(chance, menu.calls[call] + 2, menu.early)
    least_s, most_s = _LASTING_S.get(kind, (0.0, 0.0))
    lasts_s = least_s * (most_s / least_s) ** chance.random() if least_s else 0.0
    return Fault(
        number=number,
        kind=kind,
        call=call,
        nth=nth,
        lasts_s=round(min(lasts_s, menu.lasts_s_max), 1),
        amount=chance.choice(_JUMPS_S) if kind is FaultKind.CLOCK_JUMP else 0.0,
        action=chance.choice(menu.actions) if kind is FaultKind.OPERATOR else "",
    )


def _draw_number(chance: Random, most: int, early: float) -> int:
    if early == 1.0:
        return chance.randint(1, most)
    return 1 + int(most * chance.random() ** early)
