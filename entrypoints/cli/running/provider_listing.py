"""What looks at a provider's listing, without fetching, have in common."""

from tileferry.adapters.postgres import schema_status
from tileferry.application.transfers.provider_calls import ProviderCalls
from tileferry.entrypoints.cli.output import notes
from tileferry.entrypoints.cli.progress.waits import WaitLines
from tileferry.entrypoints.container import Container


def provider_calls(container: Container, purpose: str) -> ProviderCalls:
    """Return calls to the provider; their retries are told, and go to the audit log."""
    provider = container.provider()  # what is wrong with its settings is said first
    schema_status(container.database()).check()
    trail = container.audit_trail()
    trail.sinks = [WaitLines(notes), *trail.sinks]
    return ProviderCalls(
        provider=provider,
        retry=container.provider_retry(),
        clock=container.clock(),
        policy=container.download_settings().policy,
        correlation_id=purpose,
    )
