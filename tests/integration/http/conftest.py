"""Both ways to a provider."""

from collections.abc import Iterator

import pytest
from support.hostile_provider import LANES, by_lane


@pytest.fixture(params=LANES)
def lane(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways to the provider are held to the same rules."""
    with by_lane(request.param):
        yield request.param
