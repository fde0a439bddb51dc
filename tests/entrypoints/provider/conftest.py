"""One provider for the tests of a module; each test begins with a well-behaved one."""

from collections.abc import Iterator

import httpx
import pytest
from support.provider import RunningProvider, serve_provider


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[RunningProvider]:
    """Run a provider for a module's tests."""
    with serve_provider(page_size=10, upload_bytes_max=1_000_000) as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: RunningProvider) -> RunningProvider:
    """Return the provider, with no fault and an empty record."""
    shared_provider.reset()
    return shared_provider


@pytest.fixture
def client(provider: RunningProvider) -> Iterator[httpx.Client]:
    """Return a client of the provider that has its key."""
    with provider.client() as client:
        yield client
