"""The operator's settings of a download."""

from datetime import timedelta

from attrs import field, frozen, validators

from tileferry.application.cache.group_commit import GroupLimits
from tileferry.domain.retry import DOWNLOAD_POLICY, RetryPolicy
from tileferry.domain.tiles import ListingLimits, ResolutionGate
from tileferry.domain.tiles.selection import ABSENT_TTL, FetchMode
from tileferry.domain.validation import number


@frozen(kw_only=True)
class DownloadSettings:
    """The operator's settings of a download."""

    mode: FetchMode = FetchMode.MISSING
    policy: RetryPolicy = DOWNLOAD_POLICY
    gate: ResolutionGate = field(factory=ResolutionGate)
    absent_ttl: timedelta = ABSENT_TTL
    """How long a tile that the provider did not have is not requested again."""
    listing: ListingLimits = field(factory=ListingLimits)
    group: GroupLimits = field(factory=GroupLimits)
    max_failures_share: float | None = field(
        default=None, validator=validators.optional(number(0, 1))
    )
    """The share of tiles that may fail before the run aborts; ``None``: an outage aborts at once.
    """
