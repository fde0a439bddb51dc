"""The schedule of a policy as a plot: the wait after each call, the cap, and the deadline."""

from collections.abc import Sequence

from attrs import frozen

from tileferry.domain.retry import RetryPolicy, RetryReason, RetrySchedule
from tileferry.entrypoints.cli.formatting import format_duration

WIDTH, HEIGHT = 480, 272
_LEFT, _RIGHT, _TOP, _FLOOR = 16.0, 464.0, 44.0, 176.0
_TIMELINE = 236.0
_BARS_MAX = 40
_BAR_WIDTH_MAX = 44.0
_LABELS_MAX = 8
"""More labels than this would overlap."""


@frozen(kw_only=True)
class Bar:
    """The wait after one call: its length before jitter, and the range with jitter."""

    call: int
    x: float
    width: float
    y: float
    height: float
    y_min: float
    y_max: float
    label: str
    """Empty if it would not fit."""
    title: str

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@frozen(kw_only=True)
class Mark:
    """A place on an axis, and what it is."""

    at: float
    label: str


@frozen(kw_only=True)
class SchedulePlot:
    """Coordinates of the plot, in the units of its view box."""

    width: int = WIDTH
    height: int = HEIGHT
    left: float = _LEFT
    right: float = _RIGHT
    floor: float = _FLOOR
    timeline: float = _TIMELINE
    bars: Sequence[Bar]
    left_out: int
    """Waits that are not drawn."""
    cap: Mark
    deadline: Mark | None
    calls: Sequence[float]
    """When each drawn call starts at the latest, on the time line."""
    end: str
    summary: str
    """The plot in one sentence, for those who cannot see it."""


def plot_schedule(policy: RetryPolicy, schedule: RetrySchedule) -> SchedulePlot | None:
    """Return the plot of a schedule; ``None`` if the policy never waits."""
    if not schedule.waits:
        return None
    shown = schedule.waits[:_BARS_MAX]
    asked = shown[0].reason is RetryReason.RETRY_AFTER
    cap_s = policy.max_retry_after_s if asked else policy.max_delay
    longest_s = max(cap_s, *(wait.delay_s_max for wait in shown)) or 1.0
    end_s = max(schedule.worst_case_s, policy.deadline_s or 0.0) or 1.0

    def to_y(seconds: float) -> float:
        return round(_FLOOR - (_FLOOR - _TOP) * seconds / longest_s, 1)

    def to_x(seconds: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * seconds / end_s, 1)

    step = (_RIGHT - _LEFT) / len(shown)
    width = round(min(step * 0.7, _BAR_WIDTH_MAX), 1)
    every = -(-len(shown) // _LABELS_MAX)
    bars = [
        Bar(
            call=wait.call,
            x=round(_LEFT + step * (number + 0.5) - width / 2, 1),
            width=width,
            y=to_y(wait.delay_s),
            height=round(_FLOOR - to_y(wait.delay_s), 1),
            y_min=to_y(wait.delay_s_min),
            y_max=to_y(wait.delay_s_max),
            label=format_duration(wait.delay_s) if number % every == 0 else "",
            title=f"After call {wait.call}: {format_duration(wait.delay_s_min)} to"
            f" {format_duration(wait.delay_s_max)}",
        )
        for number, wait in enumerate(shown)
    ]
    cap_name = "longest Retry-After" if asked else "cap"
    waits = "1 wait" if len(schedule.waits) == 1 else f"{len(schedule.waits)} waits"
    total = format_duration(schedule.worst_case_s)
    deadline_s = policy.deadline_s
    return SchedulePlot(
        bars=bars,
        left_out=len(schedule.waits) - len(shown),
        cap=Mark(at=to_y(cap_s), label=f"{cap_name} {format_duration(cap_s)}"),
        deadline=None
        if deadline_s is None
        else Mark(at=to_x(deadline_s), label=f"deadline {format_duration(deadline_s)}"),
        calls=[to_x(0.0), *(to_x(wait.total_s_max) for wait in shown)],
        end=f"last call after {total} at most",
        summary=f"{waits}, {total} in total at most, {cap_name} {format_duration(cap_s)}, "
        + ("no deadline" if deadline_s is None else f"deadline {format_duration(deadline_s)}"),
    )
