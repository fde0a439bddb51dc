"""``[retry.<CATEGORY>]`` of the configuration: how a deployment changes the retry policies."""

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from tileferry.domain.audit import AlertThresholds
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import POLICY_MATRIX, BackoffKind, RetryCategory, RetryPolicy


@frozen(kw_only=True)
class CategoryConfig:
    """Overrides for one category; a setting without a value keeps the product's default.

    Whole numbers are read as floats, so that 2.5 attempts are rejected instead of truncated to 2.
    """

    max_attempts: float | None = None
    base_delay: float | None = None
    max_delay: float | None = None
    backoff_multiplier: float | None = None
    backoff: BackoffKind | None = None
    jitter_enabled: bool | None = None
    jitter_factor: float | None = None
    deadline_s: float | None = None
    max_rate_limited: float | None = None
    max_retry_after_s: float | None = None
    alert_retries_per_minute: float | None = None
    """Alert threshold of ``audit stats``; overrides ``audit.alert_retries_per_minute``."""

    @property
    def changes(self) -> dict[str, Any]:
        """The overrides, by the field names of the policy."""
        values = attrs.asdict(self)
        del values["alert_retries_per_minute"]
        return {
            name: _to_whole_number(value) for name, value in values.items() if value is not None
        }


_UNCHANGED = CategoryConfig()


@frozen(kw_only=True)
class RetryConfig:
    """One table for each category."""

    NATS_CONNECT: CategoryConfig = _UNCHANGED
    NATS_PUBLISH: CategoryConfig = _UNCHANGED
    NATS_SUBSCRIBE: CategoryConfig = _UNCHANGED
    NATS_STREAM_CREATE: CategoryConfig = _UNCHANGED
    KV_CREATE: CategoryConfig = _UNCHANGED
    KV_GET: CategoryConfig = _UNCHANGED
    KV_PUT: CategoryConfig = _UNCHANGED
    KV_DELETE: CategoryConfig = _UNCHANGED
    EXECUTION_INTENT: CategoryConfig = _UNCHANGED
    EXECUTION_CONTAINMENT: CategoryConfig = _UNCHANGED
    EXECUTION_EXPIRATION: CategoryConfig = _UNCHANGED
    APPROVAL_CHECK: CategoryConfig = _UNCHANGED
    APPROVAL_GRANT: CategoryConfig = _UNCHANGED
    REPLAY_PROCESSING: CategoryConfig = _UNCHANGED
    REPLAY_VALIDATION: CategoryConfig = _UNCHANGED
    API_REQUEST: CategoryConfig = _UNCHANGED
    API_VALIDATION: CategoryConfig = _UNCHANGED

    def for_category(self, category: RetryCategory) -> CategoryConfig:
        chosen: CategoryConfig = getattr(self, category.name)
        return chosen


def build_category_policies(config: RetryConfig) -> Mapping[RetryCategory, RetryPolicy]:
    """Return the policy of each category, with its overrides applied."""
    return {
        category: apply_changes(
            policy, config.for_category(category).changes, f"retry.{category.name}"
        )
        for category, policy in POLICY_MATRIX.items()
    }


def apply_changes(policy: RetryPolicy, changes: Mapping[str, Any], where: str) -> RetryPolicy:
    """Return the policy with these changes; errors name the setting, not the policy's field."""
    try:
        return attrs.evolve(policy, **changes)
    except InvalidValueError as error:
        raise _name_by_path(error, where) from None


def build_alert_thresholds(overall: float | None, config: RetryConfig) -> AlertThresholds:
    """Return the allowed retries per minute, overall and per category."""
    own: dict[str, float] = {}
    for category in RetryCategory:
        limit = config.for_category(category).alert_retries_per_minute
        if limit is not None:
            own[category] = _check_threshold(
                limit, f"retry.{category.name}.alert_retries_per_minute"
            )
    if overall is not None:
        _check_threshold(overall, "audit.alert_retries_per_minute")
    return AlertThresholds(retries_per_minute=overall, by_category=own)


def _check_threshold(limit: float, where: str) -> float:
    try:
        AlertThresholds(retries_per_minute=limit)
    except InvalidValueError as error:
        raise attrs.evolve(error, field=where) from None
    return limit


def _name_by_path(error: InvalidValueError, where: str) -> InvalidValueError:
    name = error.field.removeprefix(f"{RetryPolicy.__name__}.")
    return attrs.evolve(error, field=f"{where}.{name}" if where else name)


def _to_whole_number(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value
