"""All retry policies by name: one per category, plus those for transfers, runs and partitions."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import evolve, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    DOWNLOAD_SESSION_POLICY,
    PARTITION_FIELDS,
    PARTITION_POLICY,
    POLICY_MATRIX,
    QUARANTINE_POLICY,
    RUN_FIELDS,
    RUN_POLICY,
    RetryBudget,
    RetryCategory,
    RetryPolicy,
    build_quarantine_policy,
    build_upload_policy,
)
from tileferry.entrypoints.config.retry_overrides import apply_changes, build_category_policies
from tileferry.entrypoints.config.sections import C11Config, Config

POLICY_FIELDS = [
    field.name
    for field in attrs.fields(RetryPolicy)
    if field.name != "name" and not field.name.endswith("_exceptions")
]
"""The fields that a deployment can set; the product sets the name and the retryable exceptions."""
_DEFAULT_C11 = C11Config()


def build_download_policy(c11: C11Config) -> RetryPolicy:
    """Return the policy for requests for listings and tiles."""
    return evolve(
        DOWNLOAD_POLICY,
        max_attempts=c11.max_5xx_retries + 1,
        max_retry_after_s=c11.max_retry_after_s,
    )


def build_session_policy(c11: C11Config) -> RetryPolicy:
    """Return the policy for the passes of a download over its area."""
    return evolve(
        DOWNLOAD_SESSION_POLICY,
        deadline_s=c11.give_up_after_s,
        max_retry_after_s=c11.max_retry_after_s,
    )


def build_retry_budget(c11: C11Config) -> RetryBudget:
    """Return the full retry budget of requests to the provider."""
    return RetryBudget(
        capacity=c11.retry_budget_capacity,
        earned_per_success=c11.retry_budget_earned_per_success,
        refill_per_s=c11.retry_budget_refill_per_s,
    )


def build_in_call_policy(c11: C11Config) -> RetryPolicy:
    """Return the policy for retries of rejected tiles within one upload command."""
    return build_upload_policy(c11.max_in_call_retries, c11.backoff_base_s, c11.backoff_cap_s)


def build_run_policy(config: Config) -> RetryPolicy:
    """Return the policy for runs: that of their category, with the settings of ``worker``."""
    worker = config.worker
    own = {
        "max_attempts": worker.max_attempts,
        "base_delay": worker.initial_backoff_s,
        "max_delay": worker.max_backoff_s,
        "backoff_multiplier": worker.backoff_multiplier,
    }
    return _specialize(config, RetryCategory.EXECUTION_INTENT, RUN_FIELDS, own)


def build_partition_policy(config: Config) -> RetryPolicy:
    """Return the policy for automatic retries of partitions that the validator rejected: that of
    their category, with the settings of ``partitions``.
    """
    partitions = config.partitions
    own = {
        "max_attempts": partitions.max_attempts,
        "base_delay": partitions.initial_backoff_s,
        "max_delay": partitions.max_backoff_s,
        "backoff_multiplier": partitions.backoff_multiplier,
        "jitter_enabled": partitions.jitter_enabled,
        "jitter_factor": partitions.jitter_factor,
    }
    return _specialize(config, RetryCategory.REPLAY_PROCESSING, PARTITION_FIELDS, own)


def build_worker_quarantine_policy(config: Config) -> RetryPolicy:
    """Return the policy for runs that lose workers."""
    base = build_category_policies(config.retry)[RetryCategory.EXECUTION_CONTAINMENT]
    return build_quarantine_policy(config.worker.max_rescues, base)


def _specialize(
    config: Config, category: RetryCategory, usual: Mapping[str, Any], own: Mapping[str, Any]
) -> RetryPolicy:
    """Return a category's policy with the product's changes, then those of ``retry.<CATEGORY>``,
    then ``own``.
    """
    changes = config.retry.for_category(category).changes
    return apply_changes(
        POLICY_MATRIX[category], {**usual, **changes, **own}, f"retry.{category.name}"
    )


_TUNABLE = ("max_attempts", "base_delay", "max_delay", "max_rate_limited")
_OWN_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "DOWNLOAD": {"max_attempts": "c11.max_5xx_retries"},
    "UPLOAD": {"max_attempts": "c11.max_in_call_retries"},
    "RUN": {
        "max_attempts": "worker.max_attempts",
        "base_delay": "worker.initial_backoff_s",
        "max_delay": "worker.max_backoff_s",
    },
    "PARTITION": {
        "max_attempts": "partitions.max_attempts",
        "base_delay": "partitions.initial_backoff_s",
        "max_delay": "partitions.max_backoff_s",
    },
    "QUARANTINE": {},
}
"""The settings of policies that have no table of their own, by the field that they set."""


@frozen(kw_only=True)
class NamedPolicy:
    """A retry policy with its name and purpose."""

    name: str
    category: RetryCategory
    """The category of the audit events of its calls."""
    policy: RetryPolicy
    usual: RetryPolicy
    table: str
    """The table of the configuration that changes it."""

    @property
    def changed_fields(self) -> Sequence[str]:
        """The fields that differ from the product's defaults."""
        return [
            name
            for name in POLICY_FIELDS
            if getattr(self.policy, name) != getattr(self.usual, name)
        ]

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings that `policy tune` may propose, by the field that they set."""
        own = _OWN_SETTINGS.get(self.name)
        return {name: f"{self.table}.{name}" for name in _TUNABLE} if own is None else own

    def to_setting(self, field_name: str, value: float) -> tuple[str, float]:
        """Return the setting of a field, and its value there."""
        path = self.settings[field_name]
        if path.endswith("_retries"):  # counts retries, the policy counts attempts
            return path, value - 1
        return path, value


def list_policies(config: Config) -> Mapping[str, NamedPolicy]:
    """Return every policy as configured, by name."""
    found = {
        category.name: NamedPolicy(
            name=category.name,
            category=category,
            policy=policy,
            usual=POLICY_MATRIX[category],
            table=f"retry.{category.name}",
        )
        for category, policy in build_category_policies(config.retry).items()
    }
    for own in (
        NamedPolicy(
            name="DOWNLOAD",
            category=RetryCategory.API_REQUEST,
            policy=build_download_policy(config.c11),
            usual=build_download_policy(_DEFAULT_C11),
            table="c11",
        ),
        NamedPolicy(
            name="DOWNLOAD_SESSION",
            category=RetryCategory.API_REQUEST,
            policy=build_session_policy(config.c11),
            usual=build_session_policy(_DEFAULT_C11),
            table="c11",
        ),
        NamedPolicy(
            name="UPLOAD",
            category=RetryCategory.API_VALIDATION,
            policy=build_in_call_policy(config.c11),
            usual=build_in_call_policy(_DEFAULT_C11),
            table="c11",
        ),
        NamedPolicy(
            name="RUN",
            category=RetryCategory.EXECUTION_INTENT,
            policy=build_run_policy(config),
            usual=RUN_POLICY,
            table="worker",
        ),
        NamedPolicy(
            name="PARTITION",
            category=RetryCategory.REPLAY_PROCESSING,
            policy=build_partition_policy(config),
            usual=PARTITION_POLICY,
            table="partitions",
        ),
        NamedPolicy(
            name="QUARANTINE",
            category=RetryCategory.EXECUTION_CONTAINMENT,
            policy=build_worker_quarantine_policy(config),
            usual=QUARANTINE_POLICY,
            table="worker",
        ),
    ):
        found[own.name] = own
    return found


def find_policy(config: Config, name: str) -> NamedPolicy:
    """Return the policy with this name, ignoring case."""
    policies = list_policies(config)
    found = policies.get(name.strip().upper())
    try:
        return found or policies[RetryCategory.parse(name).name]
    except InvalidValueError as error:
        raise evolve(error, remedy=f"use one of {', '.join(policies)}") from None
