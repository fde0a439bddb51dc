"""Both ways to a provider, and both kinds of places to download to."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.download_site import DERKACHI, ZOOM, DownloadSite, NewSite, memory_site, real_site
from support.hostile_provider import LANES, by_lane
from support.scripted_provider import ScriptedProvider


@pytest.fixture(params=LANES)
def lane(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways to the provider are held to the same rules."""
    with by_lane(request.param):
        yield request.param


@pytest.fixture(params=["fakes", "real"])
def new_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewSite]:
    """Downloads do the same with fakes, and over real HTTP into a real cache."""
    database = request.getfixturevalue("database") if request.param == "real" else None
    with ExitStack() as stack:

        def site(count: int) -> DownloadSite:
            provider = ScriptedProvider.of_area(DERKACHI, ZOOM, count)
            if database is None:
                return stack.enter_context(memory_site(tmp_path, provider))
            return stack.enter_context(real_site(tmp_path, provider, database))

        yield site
