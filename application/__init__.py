"""The use cases, and the ports they need."""

from tileferry.application.retrying import call_with_retry, call_with_retry_async

__all__ = ["call_with_retry", "call_with_retry_async"]
