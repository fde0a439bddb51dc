"""The operation categories of the product, each with the code that audit events carry."""

from enum import StrEnum

from tileferry.domain.errors import InvalidValueError


class RetryCategory(StrEnum):
    """What kind of call to the infrastructure is tried; the value is its code in the audit log.

    NATS and KV are the message bus and its key-value store; EXECUTION is the work of queued runs
    (carrying one out, quarantining a poisonous one, expiring leases); APPROVAL is the confirmation
    of large resets; REPLAY is reprocessing and checking the audit; API is the imagery provider.
    """

    NATS_CONNECT = "RETRY_NATS_CONNECT"
    NATS_PUBLISH = "RETRY_NATS_PUBLISH"
    NATS_SUBSCRIBE = "RETRY_NATS_SUBSCRIBE"
    NATS_STREAM_CREATE = "RETRY_NATS_STREAM_CREATE"

    KV_CREATE = "RETRY_KV_CREATE"
    KV_GET = "RETRY_KV_GET"
    KV_PUT = "RETRY_KV_PUT"
    KV_DELETE = "RETRY_KV_DELETE"

    EXECUTION_INTENT = "RETRY_EXECUTION_INTENT"
    EXECUTION_CONTAINMENT = "RETRY_EXECUTION_CONTAINMENT"
    EXECUTION_EXPIRATION = "RETRY_EXECUTION_EXPIRATION"

    APPROVAL_CHECK = "RETRY_APPROVAL_CHECK"
    APPROVAL_GRANT = "RETRY_APPROVAL_GRANT"

    # These two codes differ in form; consumers already match them as they are.
    REPLAY_PROCESSING = "REPLAY_REPLAY_PROCESSING"
    REPLAY_VALIDATION = "REPLAY_REPLAY_VALIDATION"

    API_REQUEST = "RETRY_API_REQUEST"
    API_VALIDATION = "RETRY_API_VALIDATION"

    @classmethod
    def named(cls, text: str) -> "RetryCategory":
        """Return a category by its name or by its code, in any case."""
        wanted = str(text).strip().upper()
        for category in cls:
            if wanted in (category.name, category.value):
                return category
        raise InvalidValueError(
            field="category",
            value=text,
            problem="is not a category of retries",
            remedy=f"use one of {', '.join(cls.__members__)}",
        )
