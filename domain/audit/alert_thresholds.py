"""How many retries per minute are allowed before an alert is raised."""

from collections.abc import Mapping

from attrs import field, frozen, validators

from tileferry.domain.validation import number


@frozen(kw_only=True)
class AlertThresholds:
    """The retries per minute of one category above which an alert is raised."""

    retries_per_minute: float | None = field(default=None, validator=validators.optional(number(0)))
    """The limit for categories without their own; ``None`` for no limit."""
    by_category: Mapping[str, float] = field(factory=dict)

    def get_limit(self, category: str) -> float | None:
        """Return the limit of a category, or ``None``."""
        return self.by_category.get(category, self.retries_per_minute)
