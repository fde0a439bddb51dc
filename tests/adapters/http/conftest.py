"""Both ways to a provider, and both kinds of places to download to."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.download_env import (
    DERKACHI,
    ZOOM,
    DownloadEnv,
    NewDownloadEnv,
    open_memory_download_env,
    open_real_download_env,
)
from support.hostile_provider import TRANSPORTS, use_transport
from support.scripted_provider import ScriptedProvider


@pytest.fixture(params=TRANSPORTS)
def lane(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways to the provider are held to the same rules."""
    with use_transport(request.param):
        yield request.param


@pytest.fixture(params=["fakes", "real"])
def new_download_env(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewDownloadEnv]:
    """Downloads do the same with fakes, and over real HTTP into a real cache."""
    database = request.getfixturevalue("database") if request.param == "real" else None
    with ExitStack() as stack:

        def site(count: int) -> DownloadEnv:
            provider = ScriptedProvider.for_area(DERKACHI, ZOOM, count)
            if database is None:
                return stack.enter_context(open_memory_download_env(tmp_path, provider))
            return stack.enter_context(open_real_download_env(tmp_path, provider, database))

        yield site
